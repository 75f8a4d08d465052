#include "app/reports/tap_export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "app/reports/tap_choice.h"
#include "engine/checkpoint/hidden_states.h"
#include "engine/family/tensor_parallel.h"
#include "engine/io/nearest.h"
#include "engine/io/printable.h"
#include "engine/model/numbers.h"
#include "engine/tensorfile/tensor_writer.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Whether a tap has an axis that changes from step to step.
bool has_axis(std::string_view axes, std::string_view letters) {
  while (!axes.empty()) {
    const std::size_t end = std::min(axes.find(','), axes.size());
    if (end == 1 && letters.find(axes[0]) != std::string_view::npos) return true;
    axes.remove_prefix(std::min(axes.size(), end + 1));
  }
  return false;
}

// One tensor of the file as it grows.
struct Series {
  std::string axes;
  std::string request;  // empty: of no one request
  int layer = -1;
  as_op_id op = AS_OP_SCHEDULE;
  std::string tap;
  std::int32_t dtype = AS_U8;
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;

  std::int64_t row_elements() const {
    std::int64_t n = 1;
    for (std::size_t a = 1; a < shape.size(); ++a) n *= shape[a];
    return n;
  }

  // Room for rows of this shape; the last axis may be longer than before. New elements are all
  // ones.
  void reserve(std::int64_t rows, const std::vector<std::int64_t>& tail) {
    const std::int64_t size = as_dtype_size(dtype);
    std::vector<std::int64_t> wanted = {std::max(rows, shape.empty() ? 0 : shape[0])};
    wanted.insert(wanted.end(), tail.begin(), tail.end());
    if (shape.size() == wanted.size() && wanted.size() > 1) {
      wanted.back() = std::max(wanted.back(), shape.back());
    }
    if (wanted == shape) return;
    Series old;
    std::swap(old.shape, shape);
    std::swap(old.bytes, bytes);
    shape = wanted;
    bytes.assign(to_size(shape[0] * row_elements() * size), 0xFF);
    if (old.shape.empty()) return;
    const std::int64_t last = old.shape.size() > 1 ? old.shape.back() : 1;
    const std::int64_t runs = old.shape[0] * old.row_elements() / last;
    const std::int64_t now = shape.size() > 1 ? shape.back() : 1;
    for (std::int64_t r = 0; r < runs; ++r) {
      std::memcpy(&bytes[to_size(r * now * size)], &old.bytes[to_size(r * last * size)],
                  to_size(last * size));
    }
  }
  // `values`: a row of this shape, dense.
  void put(std::int64_t row, const void* values, const std::vector<std::int64_t>& tail) {
    const std::int64_t size = as_dtype_size(dtype);
    const std::int64_t last = tail.empty() ? 1 : tail.back();
    const std::int64_t now = shape.size() > 1 ? shape.back() : 1;
    std::int64_t runs = 1;
    for (std::size_t a = 0; a + 1 < tail.size(); ++a) runs *= tail[a];
    std::uint8_t* to = &bytes[to_size(row * row_elements() * size)];
    for (std::int64_t r = 0; r < runs; ++r) {
      std::memcpy(to + r * now * size, static_cast<const std::uint8_t*>(values) + r * last * size,
                  to_size(last * size));
    }
  }
};

// Copies wanted taps after every op.
class Collector : public SessionObserver {
 public:
  enum class Source { kEngine, kSim, kExact };
  Collector(const TapChoice& choice, Source source, const std::vector<int>& layers)
      : choice_(choice), source_(source), layers_(layers) {}

  void op_done(const Session& session) override {
    const as_op_info& info = session.last_params().info();
    const OpParams* params = source_ == Source::kEngine
                                 ? &session.last_params()
                                 : session.verifier().free_params(source_ == Source::kExact);
    if (params == nullptr) return;
    const int running = info.phase == AS_PHASE_LAYER ? session.cursor().layer : -1;
    const int layer = running < 0 ? -1 : session.parts().config.layers[to_size(running)];
    if (layer >= 0 && !layers_.empty() && std::ranges::count(layers_, layer) == 0) return;
    const OpParams seen = with_recorded_inputs(session, *params, running);
    for (std::uint32_t i = 0; i < info.num_taps; ++i) {
      const as_tap_info& tap = info.taps[i];
      if (has_rows(seen, tap)) there_.insert(fmt::format("{}.{}", info.name, tap.name));
      if (choice_.wants(session.last_params().op(), tap)) take(session, seen, tap, layer);
    }
  }
  void step_done(const Session&) override {}
  void went_back(const Session&) override {}

  std::map<std::string, Series>& series() { return series_; }
  // "OP.TAP" of all that could have been written, wanted or not.
  const std::set<std::string>& there() const { return there_; }

 private:
  struct Row {
    std::int32_t request;
    std::int64_t position, token;  // token row of the step
  };

  // The params with the rows that ops behind attn_norm are given, where these were recorded
  // elsewhere: they take the place of what it put out before anybody reads that.
  OpParams with_recorded_inputs(const Session& session, const OpParams& params, int running) {
    OpParams seen = params;
    const auto& inputs = session.parts().inputs;
    if (inputs == nullptr || params.op() != AS_OP_ATTN_NORM) return seen;
    as_tensor& y = seen.get<as_rms_norm_params>().y;
    recorded_.assign(tensor_bytes(y), 0);
    const StepMetadata& m = session.metadata();
    y = make_tensor(static_cast<void*>(recorded_.data()), y.dtype, {y.shape[0], y.shape[1]});
    for (std::int64_t t = 0; t < y.shape[0]; ++t) {
      const std::int32_t request = m.live[to_size(m.token_to_req[to_size(t)])];
      const std::int64_t position = m.positions[to_size(t)];
      if (source_ == Source::kExact) {
        inputs->row(running, request, position, at<double>(y, t));
      } else {
        inputs->row(running, request, position, at<bf16_t>(y, t));
      }
    }
    return seen;
  }

  // Whose rows the first axis of a tap of this op has; n of them.
  std::vector<Row> rows_of(const Session& session, const as_op_info& info, std::int64_t n) const {
    const StepMetadata& m = session.metadata();
    std::vector<Row> rows;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t token = info.phase == AS_PHASE_AFTER ? m.sample_rows[to_size(i)] : i;
      const auto row = to_size(m.token_to_req[to_size(token)]);
      rows.push_back({m.live[row], m.positions[to_size(token)], i});
    }
    return rows;
  }

  Series& find(const Session& session, const std::string& name, const OpParams& params,
               const as_tap_info& tap, int layer, std::int32_t dtype, std::int32_t request) {
    Series& s = series_[name];
    s.axes = tap.axes;
    s.op = params.op();
    s.tap = tap.name;
    s.layer = layer;
    s.dtype = dtype;
    s.request = request < 0 ? "" : session.serving().requests()[to_size(request)].name;
    return s;
  }

  // Whole blocks of all layers, which are no token's.
  static bool is_moved(const OpParams& params, const as_tap_info& tap) {
    return tap.kind == AS_TAP_CACHE && params.info().phase == AS_PHASE_BEFORE &&
           has_axis(std::string_view(tap.axes).substr(0, 1), "M");
  }

  bool has_rows(const OpParams& params, const as_tap_info& tap) const {
    if (tap.kind == AS_TAP_CACHE) {
      // Rows that are read are no output, and references have no pages to move.
      const bool paged = source_ == Source::kEngine;
      return tap.direction == AS_TAP_OUT && params.has_cache(tap) &&
             (has_axis(std::string_view(tap.axes).substr(0, 1), "T") ||
              (paged && is_moved(params, tap) && params.tensor(tap.mask_offset).shape[0] > 0));
    }
    const as_tensor& t = params.tensor(tap.offset);
    return present(t) && as_tensor_numel(&t) != 0;
  }

  void take(const Session& session, const OpParams& params, const as_tap_info& tap, int layer) {
    const as_op_info& info = params.info();
    const std::string plain =
        (layer < 0 ? "" : fmt::format("layers.{}.", layer)) + info.name + "." + tap.name;
    if (!has_rows(params, tap)) return;
    if (is_moved(params, tap)) return take_moved(session, params, tap, layer, plain);
    if (tap.kind == AS_TAP_CACHE) return take_cache(session, params, tap, layer, plain);
    const as_tensor& t = params.tensor(tap.offset);
    const bool by_row = has_axis(std::string_view(tap.axes).substr(0, 1), "TN");
    if (!by_row) {
      const bool constant = !has_axis(tap.axes, "TRGSFCN");
      const std::string name =
          constant ? plain : fmt::format("step.{}.{}", session.cursor().step, plain);
      Series& s = find(session, name, params, tap, layer, t.dtype, -1);
      s.shape.assign(t.shape, t.shape + t.rank);
      const auto* from = static_cast<const std::uint8_t*>(t.data);
      s.bytes.assign(from, from + as_tensor_numel(&t) * as_dtype_size(t.dtype));
      return;
    }
    const std::vector<std::int64_t> tail(t.shape + 1, t.shape + t.rank);
    for (const Row& row : rows_of(session, info, t.shape[0])) {
      Series& s = row_series(session, params, tap, layer, plain, t.dtype, row, tail);
      put_masked(params, tap, t, row, s, tail);
    }
  }

  Series& row_series(const Session& session, const OpParams& params, const as_tap_info& tap,
                     int layer, const std::string& plain, std::int32_t dtype, const Row& row,
                     const std::vector<std::int64_t>& tail) {
    const auto& requests = session.serving().requests();
    const std::string name =
        requests.size() == 1 ? plain : requests[to_size(row.request)].name + "/" + plain;
    Series& s = find(session, name, params, tap, layer, dtype, row.request);
    s.reserve(std::max(row.position + 1, requests[to_size(row.request)].num_tokens()), tail);
    return s;
  }

  // What the op left alone stays as it is.
  static void put_masked(const OpParams& params, const as_tap_info& tap, const as_tensor& t,
                         const Row& row, Series& s, std::vector<std::int64_t> tail) {
    const auto* from =
        static_cast<const std::uint8_t*>(t.data) + row.token * t.stride[0] * as_dtype_size(t.dtype);
    if (tap.mask == AS_MASK_SLOTS &&
        *at<std::int64_t>(params.tensor(tap.mask_offset), row.token) < 0) {
      return;
    }
    if (tap.mask == AS_MASK_LENS) {
      const auto length = *at<std::int32_t>(params.tensor(tap.mask_offset), row.token);
      tail.back() = std::clamp<std::int64_t>(length, 0, tail.back());
    }
    s.put(row.position, from, tail);
  }

  // By move, as it lies in its new place; zeros where a move has none.
  void take_moved(const Session& session, const OpParams& params, const as_tap_info& tap, int layer,
                  const std::string& plain) {
    const as_cache& cache = params.cache(tap.offset);
    const as_tensor& to = params.tensor(tap.mask_offset);
    const std::int64_t width = as_cache_row_bytes(&cache);
    Series& s = find(session, fmt::format("step.{}.{}", session.cursor().step, plain), params, tap,
                     layer, AS_U8, -1);
    s.shape = {to.shape[0], width};
    s.bytes.assign(to_size(to.shape[0] * width), 0);
    for (std::int64_t m = 0; m < to.shape[0]; ++m) {
      const std::int64_t slot = *at<std::int64_t>(to, m);
      if (slot < 0 || slot >= cache.data.shape[0] * cache.rows_per_block) continue;
      as_row_get(&cache, slot, s.bytes.data() + m * width);
    }
  }

  void take_cache(const Session& session, const OpParams& params, const as_tap_info& tap, int layer,
                  const std::string& plain) {
    const as_cache& cache = params.cache(tap.offset);
    const as_tensor& slots = params.tensor(tap.mask_offset);
    const bool paged = source_ == Source::kEngine;
    const std::int64_t width = paged ? as_cache_row_bytes(&cache) : cache.data.shape[1];
    const std::int32_t dtype = paged ? AS_U8 : cache.data.dtype;
    std::vector<std::uint8_t> bytes(to_size(width * as_dtype_size(dtype)));
    for (const Row& row : rows_of(session, params.info(), slots.shape[0])) {
      const std::int64_t slot = *at<std::int64_t>(slots, row.token);
      Series& s = row_series(session, params, tap, layer, plain, dtype, row, {width});
      if (slot < 0) continue;
      if (paged) {
        if (slot >= cache.data.shape[0] * cache.rows_per_block) continue;
        as_row_get(&cache, slot, bytes.data());
      } else {
        const auto* from = static_cast<const std::uint8_t*>(cache.data.data);
        std::memcpy(bytes.data(), from + to_size(slot) * bytes.size(), bytes.size());
      }
      s.put(row.position, bytes.data(), {width});
    }
  }

  std::vector<std::uint8_t> recorded_;  // rows of attn_norm.y in the place of its own
  const TapChoice& choice_;
  Source source_;
  const std::vector<int>& layers_;
  std::map<std::string, Series> series_;
  std::set<std::string> there_;
};

nlohmann::json describe(const Series& s, const std::string& lane) {
  std::vector<std::int64_t> strides(s.shape.size(), 1);
  for (std::size_t a = s.shape.size(); a-- > 1;) strides[a - 1] = strides[a] * s.shape[a];
  return {{"op", as_op_find(s.op)->name},
          {"tap", s.tap},
          {"layer", s.layer < 0 ? nlohmann::json(nullptr) : nlohmann::json(s.layer)},
          {"request", s.request.empty() ? nlohmann::json(nullptr) : nlohmann::json(s.request)},
          {"axes", s.axes},
          {"lane", lane},
          {"strides", strides},
          {"storage_offset", 0}};
}

// Of names of which nothing was there. there: "OP.TAP" of all that was.
Error absent_taps(const std::vector<std::string>& absent, const std::set<std::string>& there) {
  const std::vector<std::string> names(there.begin(), there.end());
  const auto near = nearest_names(absent.front(), names);
  std::set<std::string> ops;
  for (const std::string& name : names) ops.insert(name.substr(0, name.find('.')));
  return bad_input(
      fmt::format("--taps {}: nothing of it was there in these steps", fmt::join(absent, ", ")),
      near.empty() ? fmt::format("there are taps of {}", fmt::join(ops, ", "))
                   : fmt::format("near it there are {}; or run more steps", fmt::join(near, ", ")));
}

Result<void> check_layers(const std::vector<int>& wanted, const ModelConfig& config) {
  for (const int layer : wanted) {
    if (std::ranges::count(config.layers, layer) > 0) continue;
    return usage_error(fmt::format("--layer {}: does not run", layer),
                       fmt::format("layers that run: {}", fmt::join(config.layers, ", ")));
  }
  return {};
}

}  // namespace

Result<TapExportTotals> export_taps(const Scenario& scenario, const LaneRegistry& lanes,
                                    const TapExportOptions& options, const std::string& path,
                                    const std::function<void(const RunProgress&)>& progress) {
  using Source = Collector::Source;
  const Source source = options.lane == "ref.exact" ? Source::kExact
                        : options.lane == "ref.sim" ? Source::kSim
                                                    : Source::kEngine;
  auto choice = TapChoice::parse(options.taps, source != Source::kEngine);
  if (!choice) return choice.error();
  if (auto ok = check_layers(options.layers, scenario.model); !ok) return ok.error();
  Collector collector(*choice, source, options.layers);
  RunOptions run;
  run.session.threads = options.threads;
  run.session.references = source == Source::kEngine ? References::kNone
                           : source == Source::kSim  ? References::kSim
                                                     : References::kBoth;
  if (source == Source::kEngine) run.session.lanes = {options.lane};
  run.steps = options.steps;
  run.decode_steps = options.decode_steps;
  run.observer = &collector;
  run.stopped = options.stopped;
  auto result = run_scenario(scenario, lanes, run, progress);
  if (!result) return result.error();
  if (result->error) return *result->error;
  // From there on another lane computed: the rows would not be what the file says.
  if (result->device_error) return *result->device_error;
  if (!result->stopped) {
    const auto absent = choice->absent([&](as_op_id op, const as_tap_info& tap) {
      return std::ranges::any_of(collector.series(), [&](const auto& entry) {
        return entry.second.op == op && entry.second.tap == tap.name;
      });
    });
    if (!absent.empty()) return absent_taps(absent, collector.there());
  }
  TensorWriter writer;
  writer.leave_unaligned();
  nlohmann::json taps = nlohmann::json::object();
  for (const auto& [name, s] : collector.series()) {
    writer.add(name, element_of(s.dtype), s.shape, s.bytes.data(), s.bytes.size());
    taps[name] = describe(s, options.lane);
  }
  if (taps.empty()) {
    return bad_input("none of the taps was written in these steps",
                     "run more steps, or name ops that the model's layers have");
  }
  writer.metadata("format", "pt");
  writer.metadata("attnscope.scenario", scenario.name);
  writer.metadata("attnscope.model", rank_config(scenario.model, scenario.parallel).name);
  writer.metadata("attnscope.complete", result->stopped ? "false" : "true");
  writer.metadata("attnscope.taps", json_text(taps));
  auto size = writer.write(path);
  if (!size) return size.error();
  TapExportTotals totals;
  totals.tensors = static_cast<std::int64_t>(taps.size());
  totals.steps = static_cast<std::int64_t>(result->steps.size());
  totals.bytes = size->bytes;
  totals.complete = !result->stopped;
  return totals;
}

}  // namespace attnscope
