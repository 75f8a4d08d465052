// What a trace copies of each op, against the params struct itself at the time the op ran.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <set>

#include "engine/family/models.h"
#include "engine/session/step/layer_ops.h"
#include "engine/session/tap_copies.h"
#include "engine/trace/axis_words.h"
#include "kernels/cpu/codec.h"
#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace trace_taps_test {

// Lets a test look at session and recorder between two ops.
class Probe : public SessionObserver {
 public:
  Probe(TraceRecorder& recorder, std::function<void(const Session&)> look)
      : recorder_(recorder), look_(std::move(look)) {}
  void op_done(const Session& session) override {
    recorder_.op_done(session);
    look_(session);
  }
  void step_done(const Session& session) override { recorder_.step_done(session); }
  void went_back(const Session& session) override { recorder_.went_back(session); }

 private:
  TraceRecorder& recorder_;
  std::function<void(const Session&)> look_;
};

// Bytes of the elements whose index along axis `t` is in `rows`, element by element.
std::vector<std::uint8_t> picked(const as_tensor& tensor, int t,
                                 const std::vector<std::int32_t>& rows) {
  std::vector<std::uint8_t> out;
  const std::int64_t size = as_dtype_size(tensor.dtype);
  std::vector<std::int64_t> index(static_cast<std::size_t>(tensor.rank), 0);
  const std::function<void(int)> walk = [&](int axis) {
    if (axis == tensor.rank) {
      std::int64_t offset = 0;
      for (int a = 0; a < tensor.rank; ++a) {
        offset += index[static_cast<std::size_t>(a)] * tensor.stride[a];
      }
      const auto* p = static_cast<const std::uint8_t*>(tensor.data) + offset * size;
      out.insert(out.end(), p, p + size);
      return;
    }
    auto& i = index[static_cast<std::size_t>(axis)];
    if (axis == t) {
      for (const std::int32_t row : rows) {
        i = row;
        walk(axis + 1);
      }
    } else {
      for (i = 0; i < tensor.shape[axis]; ++i) walk(axis + 1);
    }
  };
  walk(0);
  return out;
}

std::vector<std::uint8_t> all_bytes(const as_tensor& tensor) { return picked(tensor, -1, {}); }

// Elements that the op does not write become NaN; returns how many.
int blank(std::vector<std::uint8_t>& bytes, const OpParams& params, const as_tap_info& tap,
          const as_tensor& tensor, const std::vector<std::int32_t>& kept) {
  if (tap.mask == AS_MASK_ALL) return 0;
  const auto size = static_cast<std::size_t>(as_dtype_size(tensor.dtype));
  const auto columns = static_cast<std::size_t>(tensor.shape[1]);
  int count = 0;
  for (std::size_t k = 0; k < kept.size(); ++k) {
    for (std::size_t c = 0; c < columns; ++c) {
      const as_tensor& mask = params.tensor(tap.mask_offset);
      const bool written = tap.mask == AS_MASK_SLOTS
                               ? *at<std::int64_t>(mask, kept[k]) >= 0
                               : static_cast<std::int32_t>(c) < *at<std::int32_t>(mask, kept[k]);
      if (written) continue;
      ++count;
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>((k * columns + c) * size), size,
                  0xFF);
    }
  }
  return count;
}

const StepTrace* newest(const std::vector<std::shared_ptr<const StepTrace>>& traces) {
  return traces.empty() ? nullptr : traces.back().get();
}

// Every tap of every op of three steps (prefill with fewer rows than tokens, and mixed).
TEST(TraceTaps, HoldTheKeptRowsOfEveryTensorAndTheReferences) {
  auto session = small_session(References::kSim);
  TraceRecorder recorder({std::int64_t{1} << 30, 11});
  int ops = 0, weights = 0, shared = 0, references = 0, partial = 0, masked = 0;
  int equal_references = 0;
  std::set<std::string> t_inside;
  Probe probe(recorder, [&](const Session& s) {
    const auto traces = recorder.traces();
    const StepTrace& trace = *newest(traces);
    ASSERT_EQ(trace.step, s.cursor().step);
    const OpTrace& op = *trace.ops.back();
    const OpParams& params = s.last_params();
    ASSERT_EQ(op.place.op, params.op());
    ++ops;
    if (trace.kept.size() < s.metadata().positions.size()) ++partial;
    std::size_t next = 0;
    for (std::uint32_t i = 0; i < params.info().num_taps; ++i) {
      const as_tap_info& tap = params.info().taps[i];
      if (tap.kind != AS_TAP_TENSOR) continue;
      const as_tensor& tensor = params.tensor(tap.offset);
      if (as_tensor_numel(&tensor) == 0) continue;
      ASSERT_LT(next, op.taps.size());
      const TapCopy& copy = op.taps[next++];
      SCOPED_TRACE(std::string(params.info().name) + "." + tap.name);
      ASSERT_EQ(copy.name, tap.name);
      EXPECT_EQ(copy.output, tap.direction == AS_TAP_OUT);
      EXPECT_EQ(copy.rule, tap.rule);
      ASSERT_EQ(copy.value.rank, tensor.rank);
      EXPECT_EQ(copy.value.dtype, tensor.dtype);
      const auto axes = split_axes(copy.axes);
      ASSERT_EQ(static_cast<int>(axes.size()), tensor.rank);
      int t = -1;
      for (int a = 0; a < tensor.rank; ++a) {
        const bool rows = axes[static_cast<std::size_t>(a)] == "T";
        if (rows) t = a;
        EXPECT_EQ(copy.value.shape[a],
                  rows ? static_cast<std::int64_t>(trace.kept.size()) : tensor.shape[a]);
      }
      if (t > 0) t_inside.insert(copy.axes);
      EXPECT_TRUE(t < 0 || params.info().phase != AS_PHASE_AFTER);
      const auto expected = [&](const as_tensor& from) {
        std::vector<std::uint8_t> bytes = picked(from, t, trace.kept);
        if (copy.output) masked += blank(bytes, params, tap, from, trace.kept);
        return bytes;
      };
      EXPECT_EQ(all_bytes(copy.value), expected(tensor));
      const bool is_weight = copy.value.data == tensor.data;
      if (is_weight) {
        ++weights;
        EXPECT_FALSE(copy.output);
        EXPECT_EQ(copy.owner, s.parts().weights);
        EXPECT_TRUE(copy.value_bytes.empty());
      } else if (copy.owner) {
        ++shared;
        EXPECT_TRUE(copy.value_bytes.empty());
      } else {
        EXPECT_EQ(copy.value.data, copy.value_bytes.data());
      }
      ASSERT_EQ(copy.reference.data != nullptr, copy.output);
      if (!copy.output) continue;
      ++references;
      const bool equal = copy.reference_bytes.empty();  // the bytes are the engine's then
      equal_references += equal ? 1 : 0;
      EXPECT_EQ(copy.reference_bytes.capacity() == 0, equal);
      EXPECT_EQ(copy.reference.data, equal ? copy.value.data : copy.reference_bytes.data());
      EXPECT_EQ(all_bytes(copy.reference), expected(s.last_forced().tensor(tap.offset)));
      EXPECT_EQ(copy.reference.shape[0], copy.value.shape[0]);
    }
    EXPECT_EQ(next, op.taps.size());
  });
  session->set_observer(&probe);
  run_steps(*session, 4);
  EXPECT_GT(ops, 4 * 60);
  EXPECT_GT(weights, 100);
  EXPECT_GT(shared, 100);
  EXPECT_GT(references, 200);
  EXPECT_GT(equal_references, 100);
  EXPECT_GT(partial, 60);
  EXPECT_GT(masked, 100);
  EXPECT_EQ(t_inside, (std::set<std::string>{"G,T", "S,T,W"}));
}

TEST(TraceTaps, WithoutReferencesThereAreNone) {
  auto session = small_session();
  TraceRecorder recorder;
  session->set_observer(&recorder);
  run_steps(*session, 1);
  for (const auto& op : recorder.traces().front()->ops) {
    for (const TapCopy& tap : op->taps) {
      EXPECT_EQ(tap.reference.data, nullptr);
      EXPECT_EQ(tap.reference.rank, 0);
    }
    for (const RowsCopy& rows : op->rows) EXPECT_TRUE(rows.reference.empty());
    EXPECT_EQ(op->worst, Verdict::kNotCompared);
  }
}

TEST(TraceTaps, InputsThatSomebodyChangedAreNotShared) {
  auto session = small_session();
  TraceRecorder recorder;
  session->set_observer(&recorder);
  ASSERT_TRUE(*session->run_until(
      [](const Session& s) { return s.last_params().op() == AS_OP_ATTN_NORM; }));
  const auto& norm = session->last_params().get<as_rms_norm_params>();
  at<bf16_t>(norm.y, 0, 3)->bits ^= 0x40;
  ASSERT_TRUE(session->op());
  const auto traces = recorder.traces();
  const int layer = session->parts().config.layers[0];
  const TapCopy* out = traces.back()->find(layer, AS_OP_ATTN_NORM)->tap("y");
  const TapCopy* in = traces.back()->find(layer, AS_OP_Q_KV_A_PROJ)->tap("x");
  EXPECT_EQ(in->owner, nullptr);
  EXPECT_EQ(at<bf16_t>(in->value, 0, 3)->bits, at<bf16_t>(out->value, 0, 3)->bits ^ 0x40);
  EXPECT_EQ(at<bf16_t>(in->value, 0, 4)->bits, at<bf16_t>(out->value, 0, 4)->bits);
}

TEST(TraceTaps, OutliveTheSession) {
  auto session = small_session();
  TraceRecorder recorder;
  session->set_observer(&recorder);
  run_steps(*session, 1);
  const auto trace = recorder.traces().front();
  const TapCopy* weight = trace->find(1, AS_OP_Q_B_PROJ)->tap("weight");
  const std::vector<std::uint8_t> before = all_bytes(weight->value);
  session.reset();
  EXPECT_EQ(all_bytes(weight->value), before);
}

TEST(TraceRows, HoldTheRecordsOfThePagesAndOfTheReference) {
  auto session = small_session(References::kSim);
  TraceRecorder recorder({std::int64_t{1} << 30, 20});
  std::set<std::int32_t> records;
  int rows_seen = 0, equal = 0;
  Probe probe(recorder, [&](const Session& s) {
    const auto traces = recorder.traces();
    const StepTrace& trace = *newest(traces);
    const OpTrace& op = *trace.ops.back();
    const OpParams& params = s.last_params();
    for (std::uint32_t i = 0; i < params.info().num_taps; ++i) {
      const as_tap_info& tap = params.info().taps[i];
      if (tap.kind != AS_TAP_CACHE || tap.direction != AS_TAP_OUT) continue;
      const RowsCopy* rows = op.cache_rows(tap.name);
      ASSERT_NE(rows, nullptr);
      const as_cache& cache = params.cache(tap.offset);
      const as_tensor& slots = params.tensor(tap.mask_offset);
      records.insert(rows->record);
      EXPECT_EQ(rows->record, cache.record);
      EXPECT_EQ(rows->row_bytes, as_row_bytes(cache.record, cache.width));
      EXPECT_EQ(rows->rows_per_block, cache.rows_per_block);
      const std::size_t n = rows->tokens.size();
      ASSERT_EQ(rows->slots.size(), n);
      ASSERT_EQ(rows->bytes.size(), n * static_cast<std::size_t>(rows->row_bytes));
      ASSERT_EQ(rows->reference.size(), rows->bytes.size());
      std::vector<std::int32_t> expected;
      for (const std::int32_t t : trace.kept) {
        if (*at<std::int64_t>(slots, t) >= 0) expected.push_back(t);
      }
      EXPECT_EQ(rows->tokens, expected);
      for (std::size_t k = 0; k < n; ++k, ++rows_seen) {
        EXPECT_EQ(rows->slots[k], *at<std::int64_t>(slots, rows->tokens[k]));
        const auto block = static_cast<std::size_t>(rows->slots[k] / rows->rows_per_block);
        EXPECT_EQ(trace.owners[block].group, rows->group);
        EXPECT_EQ(trace.owners[block].request, trace.request_of(rows->tokens[k]));
        const as_row_address row = as_cache_row(&cache, rows->slots[k]);
        const auto payload = static_cast<std::size_t>(as_payload_bytes(cache.record, cache.width));
        const std::uint8_t* copy =
            rows->bytes.data() + k * static_cast<std::size_t>(rows->row_bytes);
        EXPECT_EQ(std::memcmp(copy, row.payload, payload), 0);
        if (row.scales != nullptr) {
          EXPECT_EQ(std::memcmp(copy + payload, row.scales,
                                static_cast<std::size_t>(as_scale_bytes(cache.record))),
                    0);
        }
        // ref.sim writes (nearly) the same: as values within a code step of each other.
        const std::uint8_t* sim =
            rows->reference.data() + k * static_cast<std::size_t>(rows->row_bytes);
        if (std::memcmp(copy, sim, static_cast<std::size_t>(rows->row_bytes)) == 0) ++equal;
        std::vector<float> a(static_cast<std::size_t>(rows->width)), b = a;
        cpu::decode_row(rows->record, rows->width, copy, copy + payload, a.data());
        cpu::decode_row(rows->record, rows->width, sim, sim + payload, b.data());
        double difference = 0, norm = 0;
        for (std::size_t d = 0; d < a.size(); ++d) {
          difference += std::pow(a[d] - b[d], 2);
          norm += std::pow(b[d], 2);
        }
        EXPECT_GT(norm, 0);
        EXPECT_LT(difference, 1e-3 * norm);
      }
    }
  });
  session->set_observer(&probe);
  run_steps(*session, 3);
  EXPECT_EQ(records,
            (std::set<std::int32_t>{AS_RECORD_LATENT, AS_RECORD_INDEX_FP8, AS_RECORD_STATE}));
  EXPECT_GT(rows_seen, 300);
  EXPECT_GT(equal, 0);
}

// From the definition, in float64, for one kept row and head.
void expect_attention(const AttentionCopy& copy, const as_sparse_attention_params& p,
                      std::int64_t i, std::int64_t token, std::int64_t h) {
  const std::int64_t columns = copy.window + copy.extra;
  std::vector<double> logits(static_cast<std::size_t>(columns), NAN);
  double sum = 0;
  for (std::int64_t c = 0; c < columns; ++c) {
    const bool window = c < copy.window;
    const as_tensor& list = window ? p.indices : p.extra_indices;
    const std::int64_t k = window ? c : c - copy.window;
    const bool read = k < *at<std::int32_t>(window ? p.topk_length : p.extra_topk_length, token);
    const std::int32_t slot = read ? *at<std::int32_t>(list, token, k) : -1;
    const auto at_column = static_cast<std::size_t>(i * columns + c);
    ASSERT_EQ(copy.slots[at_column], slot);
    if (slot < 0) continue;
    const as_cache& cache = window ? p.cache : p.extra_cache;
    const as_row_address row = as_cache_row(&cache, slot);
    std::vector<float> kv(512);
    cpu::decode_row(cache.record, 512, row.payload, row.scales, kv.data());
    double dot = 0;
    for (std::int64_t d = 0; d < 512; ++d) {
      dot += static_cast<double>(cpu::bf16_to_float(at<bf16_t>(p.q, token, h, d)->bits)) *
             kv[static_cast<std::size_t>(d)];
    }
    logits[static_cast<std::size_t>(c)] = dot / std::sqrt(512.0);
    sum += std::exp(logits[static_cast<std::size_t>(c)]);
  }
  const double sink = std::exp(static_cast<double>(*at<float>(p.sinks, h)));
  double total = 0;
  for (std::int64_t c = 0; c < columns; ++c) {
    const auto cell = static_cast<std::size_t>((i * copy.heads + h) * columns + c);
    const double logit = logits[static_cast<std::size_t>(c)];
    EXPECT_EQ(std::isnan(copy.logits[cell]), std::isnan(logit));
    if (std::isnan(logit)) {
      EXPECT_EQ(copy.weights[cell], 0);
      continue;
    }
    EXPECT_NEAR(copy.logits[cell], logit, 1e-4);
    EXPECT_NEAR(copy.weights[cell], std::exp(logit) / (sum + sink), 1e-5);
    total += copy.weights[cell];
  }
  const float mass = copy.sink_mass[static_cast<std::size_t>(i * copy.heads + h)];
  EXPECT_NEAR(mass, sink / (sum + sink), 1e-5);
  EXPECT_NEAR(total + mass, 1, 1e-5);
}

TEST(TraceAttention, WeightsFollowFromTheDefinitionInEveryLayerType) {
  auto session = small_session(References::kNone, small_scenario(300, 3));
  TraceRecorder recorder({std::int64_t{1} << 30, 9});
  std::set<std::int64_t> extras;
  bool sliding = false;
  Probe probe(recorder, [&](const Session& s) {
    if (s.last_params().op() != AS_OP_SPARSE_ATTENTION || s.cursor().step % 3 != 2) return;
    const auto traces = recorder.traces();
    const StepTrace& trace = *newest(traces);
    const auto& p = s.last_params().get<as_sparse_attention_params>();
    ASSERT_NE(trace.ops.back()->attention, nullptr);
    const AttentionCopy& copy = *trace.ops.back()->attention;
    EXPECT_EQ(copy.heads, s.parts().config.heads);
    EXPECT_EQ(copy.window, 128);
    extras.insert(copy.extra);
    EXPECT_LT(copy.lse_error, 1e-4);
    for (std::size_t i = 0; i < trace.kept.size(); i += 2) {
      const std::int64_t token = trace.kept[i];
      EXPECT_EQ(copy.window_len[i], *at<std::int32_t>(p.topk_length, token));
      const std::int32_t extra = copy.extra > 0 ? *at<std::int32_t>(p.extra_topk_length, token) : 0;
      EXPECT_EQ(copy.extra_len[i], extra);
      if (s.metadata().positions[static_cast<std::size_t>(token)] > 128) sliding = true;
      expect_attention(copy, p, static_cast<std::int64_t>(i), token, 1);
      expect_attention(copy, p, static_cast<std::int64_t>(i), token, copy.heads - 1);
    }
  });
  session->set_observer(&probe);
  run_steps(*session, 7);
  EXPECT_EQ(extras, (std::set<std::int64_t>{0, 128, 512}));
  EXPECT_TRUE(sliding);
}

TEST(TraceAttention, ALaneWithAnotherLseShowsInTheError) {
  for (const char* lane : {"cpu", "mutant:lse_with_sink"}) {
    auto session = small_session(References::kNone, small_scenario(), lane);
    TraceRecorder recorder;
    session->set_observer(&recorder);
    run_steps(*session, 1);
    const AttentionCopy& copy =
        *recorder.traces().front()->find(0, AS_OP_SPARSE_ATTENTION)->attention;
    if (std::string(lane) == "cpu") {
      EXPECT_LT(copy.lse_error, 1e-4);
    } else {
      EXPECT_GT(copy.lse_error, 1e-3);
    }
  }
}

// A row that a slot masks is there with all its heads, or not at all.
TEST(TraceTaps, RowsOfSeveralHeadsAreWhole) {
  Scenario scenario = small_scenario(40, 2);
  scenario.model = *preset("tiny-llama");
  auto session = small_session(References::kSim, scenario);
  TraceRecorder recorder;
  session->set_observer(&recorder);
  run_steps(*session, 1);
  const OpTrace* op = recorder.traces().front()->find(0, AS_OP_ROPE_KV_INSERT);
  ASSERT_NE(op, nullptr);
  const TapCopy* row = op->tap("k_row");
  ASSERT_NE(row, nullptr);
  ASSERT_EQ(row->value.rank, 3);
  ASSERT_EQ(op->rows.front().name, "k_cache");
  ASSERT_EQ(row->value_bytes.size(), op->rows.front().bytes.size());
  EXPECT_EQ(row->value_bytes, op->rows.front().bytes) << "rows of bf16 hold what was made";
  EXPECT_EQ(tap_stats(row->value).nans, 0);
}

StepMetadata scheduled(const std::vector<std::int32_t>& tokens) {
  StepMetadata step;
  step.query_start_loc = {0};
  for (const std::int32_t n : tokens) {
    step.live.push_back(static_cast<std::int32_t>(step.live.size()));
    step.num_scheduled_tokens.push_back(n);
    step.query_start_loc.push_back(step.query_start_loc.back() + n);
  }
  step.positions.resize(static_cast<std::size_t>(step.query_start_loc.back()));
  return step;
}

TEST(TraceKept, AllRowsWhenTheyFitElseTheLastOfEveryRequest) {
  using Rows = std::vector<std::int32_t>;
  EXPECT_EQ(rows_to_keep(scheduled({3, 0, 2}), 5), (Rows{0, 1, 2, 3, 4}));
  EXPECT_EQ(rows_to_keep(scheduled({3, 0, 2}), 50), (Rows{0, 1, 2, 3, 4}));
  EXPECT_EQ(rows_to_keep(scheduled({10, 10}), 6), (Rows{7, 8, 9, 17, 18, 19}));
  EXPECT_EQ(rows_to_keep(scheduled({10, 0, 10}), 5), (Rows{7, 8, 9, 18, 19}));
  // What a short request leaves goes to the long one.
  EXPECT_EQ(rows_to_keep(scheduled({10, 1}), 6), (Rows{5, 6, 7, 8, 9, 10}));
  // Every scheduled request keeps its last row.
  EXPECT_EQ(rows_to_keep(scheduled({2, 2, 0, 2}), 2), (Rows{1, 3, 5}));
  EXPECT_TRUE(rows_to_keep(scheduled({0, 0}), 4).empty());
}

}  // namespace trace_taps_test
}  // namespace attnscope
