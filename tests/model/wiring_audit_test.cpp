// What an op is given, planted otherwise between a session and the audit: each time the op, the
// layer and the right name are said, and of sound sessions nothing.
#include "app/wiring/deepseek_v4/wiring_audit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>

#include "app/wiring/deepseek_v4/model_reference.h"
#include "app/wiring/wiring.h"
#include "engine/checkpoint/export_checkpoint.h"
#include "engine/family/model_weights.h"
#include "engine/session/session.h"
#include "kernels/params/tensor_view.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace wiring_audit_test {

// What a plant may take in the place of what is right.
struct Around {
  const Session& session;
  const std::map<as_op_id, OpParams>& ran;  // by op, the last time

  const WeightList& weights(std::size_t layer) const {
    return session.parts().weights->layers[layer];
  }
};
using Plant = std::function<void(OpParams& params, const Around& around)>;

// Gives the audit each op, and the one of a layer as the plant leaves it.
class Audited : public SessionObserver {
 public:
  Audited(const reference::ModelReference& model, const ModelConfig& config, as_op_id op, int layer,
          Plant plant)
      : audit_(model, config), op_(op), layer_(layer), plant_(std::move(plant)) {}

  void op_done(const Session& session) override {
    OpParams params = session.last_params();
    const int layer = session.cursor().layer;
    if (plant_ && params.op() == op_ && layer == layer_) plant_(params, {session, ran_});
    ran_[params.op()] = session.last_params();
    audit_.op_done(params, layer, session.parts().config.parallel, session.metadata().sample_rows);
    ++ops;
  }
  void step_done(const Session&) override {
    if (found.empty()) found = audit_.found();
  }
  void went_back(const Session&) override {}

  std::vector<WrongWire> found;  // in the first step that has something
  std::int64_t ops = 0;

 private:
  WiringAudit audit_;
  as_op_id op_;
  int layer_;
  Plant plant_;
  std::map<as_op_id, OpParams> ran_;
};

Scenario audited_scenario() {
  Scenario scenario = small_scenario(150, 3);
  scenario.model = *preset("tiny");  // numbers below are of its width
  scenario.model.index_topk = 16;
  return scenario;
}

// told: of whom ref.model is.
std::vector<WrongWire> audit(const Scenario& scenario, const Scenario& told, as_op_id op = {},
                             int layer = -1, const Plant& plant = {}) {
  SessionOptions options;
  options.references = References::kNone;
  options.threads = 2;
  auto session = Session::create(scenario, all_lanes(), options);
  auto model = model_reference(told, nullptr);
  EXPECT_TRUE(session) << session.error().text();
  EXPECT_TRUE(model) << model.error().text();
  if (!session || !model) return {};
  Audited audited(**model, told.model, op, layer, plant);
  (*session)->set_observer(&audited);
  while (!(*session)->finished() && audited.found.empty()) {
    const auto ok = (*session)->step();
    EXPECT_TRUE(ok) << ok.error().text();
    if (!ok) break;
  }
  EXPECT_GT(audited.ops, 50);
  return audited.found;
}

TEST(WiringAudit, SaysNothingOfSoundSessions) {
  const auto sound = [&](const char* switches, int ranks) {
    SCOPED_TRACE(switches);
    Scenario scenario = audited_scenario();
    scenario.model.switches = *profile_switches(switches);
    scenario.model.sink_shift = 0.25;
    scenario.model.sinks = {{1, -std::numeric_limits<float>::infinity()}, {6, 2.5f}};
    if (ranks > 1) scenario.parallel = {ranks, 1};
    for (const WrongWire& w : audit(scenario, scenario)) ADD_FAILURE() << w.what << ": " << w.note;
  };
  sound("vllm", 1);
  sound("deepseek", 1);
  sound("vllm,ratio0_yarn=on,projections=fp8", 1);
  sound("vllm,index_format=mxfp4,hadamard=on,fp4_rule=down,q_norm=bf16_factor", 1);
  sound("vllm,projections=fp8", 2);
  sound("vllm,projections=fp8_but_wo_a", 1);
  sound("vllm,attention_plan=own", 1);
  sound("vllm,attention_plan=flashmla,multiprocessors=16", 2);
}

// The same of attention's output in FP8.
TEST(WiringAudit, NamesWhatAWoAInFp8IsGivenInstead) {
  Scenario scenario = audited_scenario();
  scenario.model.switches = *profile_switches("vllm,projections=fp8");
  const auto note = [&](as_op_id op, const Plant& plant) {
    const auto found = audit(scenario, scenario, op, 1, plant);
    return found.size() == 1 ? found[0].what + ": " + found[0].note : std::string("nothing");
  };
  EXPECT_NE(note(AS_OP_WO_A,
                 [](OpParams& p, const Around& around) {
                   p.get<as_grouped_linear_params>().x.data =
                       around.ran.at(AS_OP_INVERSE_ROPE).get<as_inverse_rope_params>().row.data;
                 })
                .find("x: its input x is row of inverse_rope, not codes of inverse_rope"),
            std::string::npos);
  EXPECT_NE(note(AS_OP_WO_A,
                 [](OpParams& p, const Around& around) {
                   p.get<as_grouped_linear_params>().weight = around.weights(3)["wo_a"].tensor();
                 })
                .find("is layers.3.attn.wo_a.weight, not layers.1.attn.wo_a.weight"),
            std::string::npos);
  EXPECT_NE(note(AS_OP_INVERSE_ROPE,
                 [](OpParams& p, const Around&) {
                   p.get<as_inverse_rope_params>().scale_floor = AS_SCALE_FLOOR_1E4;
                 })
                .find("scale_floor is 0; the model's is 2"),
            std::string::npos);
}

TEST(WiringAudit, NamesWhatAnOpIsGivenInstead) {
  const Scenario scenario = audited_scenario();
  const auto expect = [&](as_op_id op, int layer, const std::string& what, const std::string& note,
                          const Plant& plant) {
    SCOPED_TRACE(note);
    const auto found = audit(scenario, scenario, op, layer, plant);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].op, op);
    EXPECT_EQ(found[0].layer, layer);
    EXPECT_EQ(found[0].what, what);
    EXPECT_NE(found[0].note.find(note), std::string::npos) << found[0].note;
  };
  // Weights of another layer.
  expect(AS_OP_SPARSE_ATTENTION, 1, "sinks",
         "is layers.2.attn.attn_sink, not layers.1.attn.attn_sink",
         [](OpParams& p, const Around& around) {
           p.get<as_sparse_attention_params>().sinks = around.weights(2)["sinks"].tensor();
         });
  expect(AS_OP_ATTN_NORM, 2, "weight",
         "is layers.0.attn_norm.weight, not layers.2.attn_norm.weight",
         [](OpParams& p, const Around& around) {
           p.get<as_rms_norm_params>().weight = around.weights(0)["attn_norm"].tensor();
         });
  expect(AS_OP_WO_A, 1, "weight", "is layers.3.attn.wo_a.weight, not layers.1.attn.wo_a.weight",
         [](OpParams& p, const Around& around) {
           p.get<as_grouped_linear_params>().weight = around.weights(3)["wo_a"].tensor();
         });
  // Numbers and tables.
  expect(AS_OP_INVERSE_ROPE, 1, "rope.table", "is that of layer 0, not that of layer 1",
         [](OpParams& p, const Around& around) {
           p.get<as_inverse_rope_params>().rope.table = around.session.parts().ropes[0].table;
         });
  expect(AS_OP_Q_ROPE_KV_INSERT, 3, "rope.base", "is 10000; the model's is 160000",
         [](OpParams& p, const Around&) { p.get<as_q_rope_kv_insert_params>().rope.base = 10000; });
  expect(AS_OP_INDEXER_Q, 1, "rope.factor", "is 1; the model's is 16",
         [](OpParams& p, const Around&) { p.get<as_indexer_q_params>().rope.factor = 1; });
  // Numbers of the profile, most of which round and no more.
  expect(AS_OP_INDEXER_Q, 1, "hadamard", "is 1; the model's is 0",
         [](OpParams& p, const Around&) { p.get<as_indexer_q_params>().hadamard ^= 1; });
  expect(AS_OP_INDEXER_COMPRESS_INSERT, 3, "hadamard", "is 1; the model's is 0",
         [](OpParams& p, const Around&) { p.get<as_compress_insert_params>().hadamard ^= 1; });
  expect(AS_OP_INDEXER_COMPRESS_INSERT, 1, "fp4_rule", "is 1; the model's is 0",
         [](OpParams& p, const Around&) { p.get<as_compress_insert_params>().fp4_rule ^= 1; });
  expect(AS_OP_COMPRESS_INSERT, 2, "round_pooled", "is 1; the model's is 0",
         [](OpParams& p, const Around&) { p.get<as_compress_insert_params>().round_pooled ^= 1; });
  expect(AS_OP_COMPRESS_INSERT, 1, "scale_floor", "is 1; the model's is 0",
         [](OpParams& p, const Around&) { p.get<as_compress_insert_params>().scale_floor ^= 1; });
  expect(AS_OP_Q_ROPE_KV_INSERT, 0, "scale_floor", "is 1; the model's is 0",
         [](OpParams& p, const Around&) { p.get<as_q_rope_kv_insert_params>().scale_floor ^= 1; });
  expect(AS_OP_Q_ROPE_KV_INSERT, 2, "q_norm", "is 2; the model's is 0",
         [](OpParams& p, const Around&) {
           p.get<as_q_rope_kv_insert_params>().q_norm = AS_Q_NORM_BF16_FACTOR;
         });
  expect(AS_OP_INDEXER_Q, 3, "fp4_rule", "is 1; the model's is 0",
         [](OpParams& p, const Around&) { p.get<as_indexer_q_params>().fp4_rule ^= 1; });
  expect(
      AS_OP_INDEXER_LOGITS, 1, "index_scores", "is 1; the model's is 0",
      [](OpParams& p, const Around&) { p.get<as_indexer_logits_params>().weights.reserved ^= 1; });
  expect(AS_OP_INDEXER_TOPK, 1, "K", "is 8; the model's is 16",
         [](OpParams& p, const Around&) { p.get<as_indexer_topk_params>().indices.shape[1] /= 2; });
  expect(AS_OP_SPARSE_ATTENTION, 2, "scale", "the model's is 0.0441942",
         [](OpParams& p, const Around&) { p.get<as_sparse_attention_params>().scale /= 2; });
  // Pages of other groups.
  expect(AS_OP_Q_ROPE_KV_INSERT, 1, "slots", "given as slots is that of group 0, not that of group",
         [](OpParams& p, const Around& around) {
           p.get<as_q_rope_kv_insert_params>().slots.data =
               around.ran.at(AS_OP_SLOT_MAPPING).get<as_slot_mapping_params>().slots.data;
         });
  expect(AS_OP_INDEXER_COMPRESS_INSERT, 1, "table",
         "given as table is that of group 0, not that of group",
         [](OpParams& p, const Around& around) {
           p.get<as_compress_insert_params>().table.data =
               around.ran.at(AS_OP_BLOCK_TABLES).get<as_block_tables_params>().tables.data;
         });
  expect(AS_OP_SPARSE_ATTENTION, 2, "indices", "given as indices is that of no group",
         [](OpParams& p, const Around& around) {
           p.get<as_sparse_attention_params>().indices.data =
               around.ran.at(AS_OP_SLOT_MAPPING).get<as_slot_mapping_params>().slots.data;
         });
  expect(AS_OP_COMPRESS_INSERT, 2, "slots", "its slots are not c128_slots of slot_mapping",
         [](OpParams& p, const Around& around) {
           p.get<as_compress_insert_params>().slots =
               around.ran.at(AS_OP_SLOT_MAPPING).get<as_slot_mapping_params>().c4_slots;
         });
  expect(AS_OP_TOPK_TO_SLOTS, 3, "rows_per_block", "is 2; the caches' is 64",
         [](OpParams& p, const Around&) { p.get<as_topk_to_slots_params>().rows_per_block = 2; });
  expect(AS_OP_C128_INDEX, -1, "rows_per_block", "is 64; the caches' is 2",
         [](OpParams& p, const Around&) { p.get<as_c128_index_params>().rows_per_block = 64; });
  expect(AS_OP_SWA_INDEX, -1, "block_size", "is 256; the caches' is 64",
         [](OpParams& p, const Around&) { p.get<as_swa_index_params>().block_size = 256; });
  expect(AS_OP_SLOT_MAPPING, -1, "mla_group", "is 1; the caches' is 0",
         [](OpParams& p, const Around&) { p.get<as_slot_mapping_params>().mla_group = 1; });
  // Other inputs.
  expect(AS_OP_Q_KV_A_PROJ, 2, "x", "is x of attn_norm, not y of attn_norm",
         [](OpParams& p, const Around& around) {
           p.get<as_linear_params>().x = around.ran.at(AS_OP_ATTN_NORM).get<as_rms_norm_params>().x;
         });
  expect(AS_OP_WO_A, 0, "x", "is o of sparse_attention, not out of inverse_rope",
         [](OpParams& p, const Around& around) {
           p.get<as_grouped_linear_params>().x.data =
               around.ran.at(AS_OP_SPARSE_ATTENTION).get<as_sparse_attention_params>().o.data;
         });
  expect(AS_OP_INDEXER_Q_PROJ, 3, "x", "is y of attn_norm, not qr of q_kv_norm",
         [](OpParams& p, const Around& around) {
           p.get<as_linear_params>().x = around.ran.at(AS_OP_ATTN_NORM).get<as_rms_norm_params>().y;
         });
  // The pages of window and compressed rows begin at one address, those of index keys at another.
  expect(AS_OP_SPARSE_ATTENTION, 1, "extra_cache", ", not cache of compress_insert",
         [](OpParams& p, const Around& around) {
           p.get<as_sparse_attention_params>().extra_cache.data.data =
               around.ran.at(AS_OP_INDEXER_COMPRESS_INSERT)
                   .get<as_compress_insert_params>()
                   .cache.data.data;
         });
  expect(
      AS_OP_INDEXER_LOGITS, 1, "cache", "not cache of indexer_compress_insert",
      [](OpParams& p, const Around& around) {
        p.get<as_indexer_logits_params>().cache.data.data =
            around.ran.at(AS_OP_COMPRESS_INSERT).get<as_compress_insert_params>().cache.data.data;
      });
  expect(AS_OP_WO_A, 2, "x", "is read with other strides than out of inverse_rope",
         [](OpParams& p, const Around&) { p.get<as_grouped_linear_params>().x.stride[1] = 0; });
  // What residual read a layer before lay in x of its attn_norm. The residual of this layer is
  // given what is right, and nothing is said of it.
  expect(AS_OP_ATTN_NORM, 3, "x", "is x of attn_norm, not out of residual",
         [](OpParams& p, const Around& around) {
           p.get<as_rms_norm_params>().x.data =
               around.ran.at(AS_OP_RESIDUAL).get<as_residual_params>().h.data;
         });
}

TEST(WiringAudit, NamesWhatAPlanIsMadeOfAndWhoIsGivenIt) {
  Scenario scenario = audited_scenario();
  scenario.model.switches = *profile_switches("vllm,attention_plan=flashmla");
  const auto expect = [&](as_op_id op, int layer, const std::string& what, const std::string& note,
                          const Plant& plant) {
    SCOPED_TRACE(note);
    const auto found = audit(scenario, scenario, op, layer, plant);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].op, op);
    EXPECT_EQ(found[0].what, what);
    EXPECT_NE(found[0].note.find(note), std::string::npos) << found[0].note;
  };
  const auto number = [&](const char* what, const char* note,
                          std::int32_t as_attention_plan_params::*field) {
    expect(AS_OP_ATTENTION_PLAN, -1, what, note,
           [&](OpParams& p, const Around&) { p.get<as_attention_plan_params>().*field = 1; });
  };
  number("rule", "is 1; the model's is 2", &as_attention_plan_params::rule);
  number("heads", "is 1; the model's is 8", &as_attention_plan_params::heads);
  number("top_k", "is 1; the model's is 16", &as_attention_plan_params::top_k);
  number("multiprocessors", "is 1; the model's is 132", &as_attention_plan_params::multiprocessors);
  expect(AS_OP_ATTENTION_PLAN, -1, "c4_lens", "is lens of swa_index, not c4_lens of slot_mapping",
         [](OpParams& p, const Around&) {
           auto& plan = p.get<as_attention_plan_params>();
           plan.c4_lens = plan.window_lens;
         });
  expect(AS_OP_SPARSE_ATTENTION, 1, "plan_splits", "is not that of C4A layers",
         [](OpParams& p, const Around& around) {
           p.get<as_sparse_attention_params>().plan_splits.data =
               around.ran.at(AS_OP_ATTENTION_PLAN).get<as_attention_plan_params>().splits.data;
         });
  expect(AS_OP_SPARSE_ATTENTION, 0, "plan_rows", "is not that of SWA layers",
         [](OpParams& p, const Around& around) {
           auto rows = around.ran.at(AS_OP_ATTENTION_PLAN).get<as_attention_plan_params>().rows;
           p.get<as_sparse_attention_params>().plan_rows.data = at<std::int32_t>(rows, 2);
         });
}

// Ops of the session stand for those that another rank has run on the same weights.
class AuditedAsPeer : public SessionObserver {
 public:
  AuditedAsPeer(const reference::ModelReference& model, const ModelConfig& config, int peer)
      : audit_(model, config), peer_(peer) {}

  void op_done(const Session& session) override {
    const OpParams& params = session.last_params();
    const TensorParallel& own = session.parts().config.parallel;
    const int layer = session.cursor().layer;
    audit_.op_done(params, layer, own, session.metadata().sample_rows);
    if (layer < 0 || !has_heads(params.op())) return;
    of_heads_.push_back(params);
    if (params.op() != AS_OP_WO_B) return;
    for (const OpParams& p : of_heads_) audit_.rank_op_done(p, layer, {own.size, peer_});
    of_heads_.clear();
  }
  void step_done(const Session&) override {
    if (found.empty()) found = audit_.found();
  }
  void went_back(const Session&) override {}

  std::vector<WrongWire> found;

 private:
  static bool has_heads(as_op_id op) {
    return op == AS_OP_Q_B_PROJ || op == AS_OP_Q_ROPE_KV_INSERT || op == AS_OP_SPARSE_ATTENTION ||
           op == AS_OP_INVERSE_ROPE || op == AS_OP_WO_A || op == AS_OP_WO_B;
  }
  WiringAudit audit_;
  int peer_;
  std::vector<OpParams> of_heads_;
};

TEST(WiringAudit, LooksAtWhatOtherRanksAreGiven) {
  Scenario scenario = audited_scenario();
  scenario.parallel = {2, 1};
  const auto found = [&](int peer) {
    SessionOptions options;
    options.references = References::kNone;
    options.threads = 2;
    auto session = Session::create(scenario, all_lanes(), options);
    auto model = model_reference(scenario, nullptr);
    EXPECT_TRUE(session && model);
    if (!session || !model) return std::vector<WrongWire>();
    AuditedAsPeer audited(**model, scenario.model, peer);
    (*session)->set_observer(&audited);
    EXPECT_TRUE((*session)->step());
    return audited.found;
  };
  for (const WrongWire& w : found(1)) ADD_FAILURE() << w.what << ": " << w.note;
  const std::vector<WrongWire> wrong = found(0);
  ASSERT_EQ(wrong.size(), 4u * 4u);  // of four layers: wq_b, sinks, wo_a and wo_b
  EXPECT_EQ(wrong[0].op, AS_OP_Q_B_PROJ);
  EXPECT_EQ(wrong[1].op, AS_OP_SPARSE_ATTENTION);
  EXPECT_EQ(wrong[1].what, "sinks");
  EXPECT_EQ(wrong[1].note,
            "on rank 0 its sinks is not layers.0.attn.attn_sink: 4 of 4 values are others");
  EXPECT_EQ(wrong[3].op, AS_OP_WO_B);
}

// final_norm reads a copy: its rows are compared.
TEST(WiringAudit, NamesARowThatWasGatheredInstead) {
  const Scenario scenario = audited_scenario();
  std::vector<bf16_t> rows;
  const auto found =
      audit(scenario, scenario, AS_OP_FINAL_NORM, -1, [&](OpParams& p, const Around& around) {
        auto& norm = p.get<as_rms_norm_params>();
        const std::int64_t row = around.session.metadata().sample_rows[0];
        ASSERT_GT(row, 0);
        const as_tensor& out = around.ran.at(AS_OP_RESIDUAL).get<as_residual_params>().out;
        rows.assign(at<bf16_t>(norm.x), at<bf16_t>(norm.x) + as_tensor_numel(&norm.x));
        std::copy_n(at<bf16_t>(out, row - 1), out.shape[1], rows.data());
        norm.x.data = rows.data();
      });
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].op, AS_OP_FINAL_NORM);
  EXPECT_NE(found[0].note.find("row 0 of its input x is row"), std::string::npos);
}

// Two folders stand for a file and what a faulty loader makes of it.
TEST(WiringAudit, NamesAWeightThatWasLoadedOtherwise) {
  const auto loaded = [](ExportDtype dtype, const std::function<void(Weights&)>& change) {
    Scenario scenario = audited_scenario(), told = scenario;
    scenario.checkpoint = ::testing::TempDir() + "attnscope_loaded";
    told.checkpoint = ::testing::TempDir() + "attnscope_published";
    const ModelConfig& config = scenario.model;
    Weights weights = synthetic_weights(config, 5, nullptr);
    for (const std::string& folder : {told.checkpoint, scenario.checkpoint}) {
      std::filesystem::remove_all(folder);
      const auto written = export_checkpoint(weights, config, folder, dtype, nullptr);
      EXPECT_TRUE(written) << written.error().text();
      change(weights);
    }
    auto found = audit(scenario, told);
    for (const std::string& folder : {told.checkpoint, scenario.checkpoint}) {
      std::filesystem::remove_all(folder);
    }
    return found;
  };
  const auto turned = loaded(ExportDtype::kBf16, [](Weights& w) {
    Buffer<float>& sinks = w.layers[2]["sinks"].f32;
    std::rotate(sinks.data(), sinks.data() + 1, sinks.data() + sinks.size());
  });
  ASSERT_EQ(turned.size(), 1u);
  EXPECT_EQ(turned[0].op, AS_OP_SPARSE_ATTENTION);
  EXPECT_EQ(turned[0].layer, 2);
  EXPECT_EQ(turned[0].note, "its sinks is not layers.2.attn.attn_sink: 8 of 8 values are others");
  const auto doubled = loaded(ExportDtype::kFp8, [](Weights& w) {
    Buffer<bf16_t>& wq_b = w.layers[1]["wq_b"].bf16;
    const std::int64_t columns = wq_b.shape()[1];
    for (std::int64_t row = 128; row < 256; ++row) {  // a block: its exponents are one higher
      for (std::int64_t i = 0; i < 128; ++i) wq_b.data()[row * columns + i].bits += 0x80;
    }
  });
  ASSERT_EQ(doubled.size(), 1u);
  EXPECT_EQ(doubled[0].op, AS_OP_Q_B_PROJ);
  EXPECT_EQ(doubled[0].layer, 1);
  EXPECT_NE(doubled[0].note.find("is not layers.1.attn.wq_b.weight"), std::string::npos);
}

}  // namespace wiring_audit_test
}  // namespace attnscope
