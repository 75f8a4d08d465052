// What an op of dense attention is given, planted otherwise between a session and the audit: each
// time the op, the layer and the right name are said, and of sound sessions nothing. No reference
// sees these: each reads what the op was given.
#include "app/wiring/dense/dense_audit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "app/wiring/dense/dense_reference.h"
#include "engine/family/dense/dense.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/tensor_view.h"
#include "tests/blame/dense_session.h"

namespace attnscope {
namespace dense_audit_test {

// What a plant may take in the place of what is right.
struct Given {
  const Session& session;
  const std::map<as_op_id, OpParams>& ran;  // by op, the last time
};
using Change = std::function<void(OpParams& params, const Given& given)>;

// Gives the audit each op, and the one of a layer as the change leaves it.
class Audited : public SessionObserver {
 public:
  Audited(const reference::ModelReference& model, const Session& session, as_op_id op, int layer,
          Change change)
      : audit_(model, dense_numbers(session.parts().config), session.parts().layout),
        op_(op),
        layer_(layer),
        change_(std::move(change)) {}

  void op_done(const Session& session) override {
    OpParams params = session.last_params();
    const int layer = session.cursor().layer;
    if (change_ && params.op() == op_ && layer == layer_) change_(params, {session, ran_});
    ran_[params.op()] = session.last_params();
    audit_.op_done(params, layer, {}, session.metadata().sample_rows);
    ++ops;
  }
  void step_done(const Session&) override {
    if (found.empty()) found = audit_.found();
  }
  void went_back(const Session&) override {}

  std::vector<WrongWire> found;  // in the first step that has something
  std::int64_t ops = 0;

 private:
  DenseAudit audit_;
  as_op_id op_;
  int layer_;
  Change change_;
  std::map<as_op_id, OpParams> ran_;
};

// A preset, or tiny-llama over rows of codes with 32 first tokens in 16 bits.
ModelConfig audited_model(const std::string& name) {
  ModelConfig config = *preset(name == "first16" ? "tiny-llama-fp8" : name);
  if (name != "first16") return config;
  EXPECT_TRUE(set_first_tokens(config, 32));
  return config;
}

std::vector<WrongWire> audit(const ModelConfig& model, as_op_id op = {}, int layer = -1,
                             const Change& change = {}) {
  const Scenario scenario = dense_scenario(model);
  auto session = session_of(scenario, References::kNone);
  auto right = dense_reference(scenario, nullptr);
  EXPECT_TRUE(right) << right.error().text();
  if (session == nullptr || !right) return {};
  Audited audited(**right, *session, op, layer, change);
  session->set_observer(&audited);
  while (!session->finished() && audited.found.empty()) {
    const auto ok = session->step();
    EXPECT_TRUE(ok) << ok.error().text();
    if (!ok) break;
  }
  EXPECT_GT(audited.ops, 20);
  return audited.found;
}

TEST(DenseAudit, SaysNothingOfSoundSessions) {
  std::vector<ModelConfig> models = {masked_model(), masked_model("tiny-llama4"),
                                     masked_model("tiny-t5")};
  for (const std::string& name : dense_names()) models.push_back(*preset(name));
  for (const ModelConfig& model : models) {
    for (const WrongWire& w : audit(model))
      ADD_FAILURE() << model.name << ' ' << w.what << ": " << w.note;
  }
}

// Where a mask counts from: positions in a chunk, in the source, of nothing.
TEST(DenseAudit, NamesPlacesThatAMaskIsGivenInstead) {
  const auto expect = [](const ModelConfig& model, int layer, const std::string& what,
                         const std::string& note, const Change& change) {
    SCOPED_TRACE(model.name + ", " + note);
    const auto found = audit(model, AS_OP_PAGED_ATTENTION, layer, change);
    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found[0].layer, layer);
    EXPECT_EQ(found[0].what, what);
    EXPECT_NE(found[0].note.find(note), std::string::npos) << found[0].note;
  };
  const auto local = [](OpParams& p, const Given&) {
    auto& attention = p.get<as_paged_attention_params>();
    attention.places = attention.positions;
  };
  const ModelConfig chunks = masked_model("tiny-llama4"), across = masked_model("tiny-t5");
  expect(chunks, 0, "places", "is not positions of slot_mapping", local);
  expect(chunks, 1, "places", "it has no places", [](OpParams& p, const Given&) {
    p.get<as_paged_attention_params>().places = no_tensor();
  });
  expect(chunks, 3, "places", "it has places, where", local);
  expect(*preset("tiny-llama4"), 0, "places", "it has places, where", local);
  expect(across, 3, "row_starts", "it has row_starts, where", [](OpParams& p, const Given&) {
    auto& attention = p.get<as_paged_attention_params>();
    attention.row_starts = attention.query_starts;
  });
  expect(across, 2, "query_starts", "is not source_lens of cross_batch",
         [](OpParams& p, const Given&) {
           auto& attention = p.get<as_paged_attention_params>();
           attention.query_starts = attention.seq_lens;
         });
  expect(across, 3, "causal", "is 1; the model's is 0",
         [](OpParams& p, const Given&) { p.get<as_paged_attention_params>().causal = 1; });
}

TEST(DenseAudit, NamesWhatAnOpIsGivenInstead) {
  const auto expect = [](const char* model, as_op_id op, int layer, const std::string& what,
                         const std::string& note, const Change& change) {
    SCOPED_TRACE(std::string(as_op_find(op)->name) + ": " + note);
    const auto found = audit(audited_model(model), op, layer, change);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].op, op);
    EXPECT_EQ(found[0].layer, layer);
    EXPECT_EQ(found[0].what, what);
    EXPECT_NE(found[0].note.find(note), std::string::npos) << found[0].note;
  };
  const auto weights = [](const Given& given, std::size_t layer, const char* name) {
    return given.session.parts().weights->layers[layer][name].tensor();
  };
  // Weights of another layer, of another projection, and one that the model has not.
  expect("tiny-llama", AS_OP_K_PROJ, 1, "weight",
         "is model.layers.2.self_attn.k_proj.weight, not model.layers.1.self_attn.k_proj.weight",
         [&](OpParams& p, const Given& given) {
           p.get<as_linear_params>().weight = weights(given, 2, "k_proj");
         });
  expect("tiny-llama", AS_OP_V_PROJ, 0, "weight", "is model.layers.0.self_attn.k_proj.weight",
         [&](OpParams& p, const Given& given) {
           p.get<as_linear_params>().weight = weights(given, 0, "k_proj");
         });
  expect("tiny-mqa", AS_OP_PAGED_ATTENTION, 2, "sinks", "it has no sinks",
         [](OpParams& p, const Given&) { p.get<as_paged_attention_params>().sinks = no_tensor(); });
  expect("tiny-alibi", AS_OP_PAGED_ATTENTION, 1, "alibi_slopes", "it has no alibi_slopes",
         [](OpParams& p, const Given&) {
           p.get<as_paged_attention_params>().alibi_slopes = no_tensor();
         });
  static float slopes[12];
  expect("tiny-alibi", AS_OP_PAGED_ATTENTION, 1, "alibi_slopes", "1 of 12 values are others",
         [&](OpParams& p, const Given& given) {
           auto& attention = p.get<as_paged_attention_params>();
           const as_tensor right = weights(given, 1, "alibi_slopes");
           for (std::int64_t h = 0; h < 12; ++h) slopes[h] = *at<float>(right, h);
           slopes[9] = std::nextafter(slopes[9], 1.0f);
           attention.alibi_slopes = make_tensor(slopes, {12});
         });
  expect("tiny-alibi", AS_OP_PAGED_ATTENTION, 2, "scale", "is 0.25; the model's is 0.125",
         [](OpParams& p, const Given&) { p.get<as_paged_attention_params>().scale = 0.25; });
  // Layers 4 and 6 share with layer 2; layer 0 has a window too.
  const auto caches = [](OpParams& p, const CacheLayout& layout, int from) {
    auto& attention = p.get<as_paged_attention_params>();
    const auto shift = layout.find(from, kKeyCache)->offset - layout.find(2, kKeyCache)->offset;
    attention.k_cache.data.data = static_cast<char*>(attention.k_cache.data.data) + shift;
  };
  expect("tiny-kvshare", AS_OP_PAGED_ATTENTION, 4, "k_cache",
         "its k_cache is not that of layer 2, whose rows it shares",
         [&](OpParams& p, const Given& given) { caches(p, given.session.parts().layout, 0); });
  // A cache of its own, in which nothing is.
  static std::uint8_t empty[1 << 16];
  expect("tiny-kvshare", AS_OP_PAGED_ATTENTION, 5, "v_cache",
         "its v_cache is not that of layer 3, whose rows it shares", [](OpParams& p, const Given&) {
           p.get<as_paged_attention_params>().v_cache.data.data = empty;
         });
  // It inserts what is not its own.
  expect("tiny-kvshare", AS_OP_ROPE_KV_INSERT, 6, "slots",
         "it has slots, and its layer reads the rows of layer 2",
         [](OpParams& p, const Given& given) {
           p.get<as_rope_kv_insert_params>().slots =
               given.ran.at(AS_OP_SLOT_MAPPING).get<as_slot_mapping_params>().slots;
         });
  // Numbers.
  expect("tiny-gemma", AS_OP_PAGED_ATTENTION, 5, "window", "is 32; the model's is 0",
         [](OpParams& p, const Given&) { p.get<as_paged_attention_params>().window = 32; });
  expect("tiny-mqa", AS_OP_PAGED_ATTENTION, 1, "soft_cap", "is 0; the model's is 20",
         [](OpParams& p, const Given&) { p.get<as_paged_attention_params>().soft_cap = 0; });
  expect("tiny-mha", AS_OP_ROPE_KV_INSERT, 1, "style", "the model's is 1",
         [](OpParams& p, const Given&) { p.get<as_rope_kv_insert_params>().style = 0; });
  expect("tiny-gemma", AS_OP_ATTN_NORM, 3, "weight_plus_one", "is 0; the model's is 1",
         [](OpParams& p, const Given&) { p.get<as_rms_norm_params>().weight_plus_one = 0; });
  // The rotary table of the layers without a window.
  expect("tiny-gemma", AS_OP_ROPE_KV_INSERT, 2, "rope.table", "is not that of layer 2",
         [](OpParams& p, const Given& given) {
           p.get<as_rope_kv_insert_params>().rope.table = given.session.parts().ropes[5].table;
         });
  // Pages of another group, inputs of another op.
  expect("tiny-gemma", AS_OP_ROPE_KV_INSERT, 2, "slots", "is that of group 0",
         [](OpParams& p, const Given& given) {
           p.get<as_rope_kv_insert_params>().slots.data =
               given.ran.at(AS_OP_SLOT_MAPPING).get<as_slot_mapping_params>().slots.data;
         });
  // First tokens in 16 bits: another border, the table and the slots of the rows beside them, rows
  // of another layer, and a layer that has none.
  EXPECT_TRUE(audit(audited_model("first16")).empty());
  expect("first16", AS_OP_PAGED_ATTENTION, 1, "wide_tokens", "is 31; the model's is 32",
         [](OpParams& p, const Given&) { p.get<as_paged_attention_params>().wide_tokens = 31; });
  expect("first16", AS_OP_PAGED_ATTENTION, 2, "wide_table", "is that of group 0",
         [](OpParams& p, const Given&) {
           auto& attention = p.get<as_paged_attention_params>();
           attention.wide_table.data = attention.table.data;
         });
  expect("first16", AS_OP_ROPE_KV_INSERT, 2, "wide_slots", "is that of group 0",
         [](OpParams& p, const Given&) {
           auto& insert = p.get<as_rope_kv_insert_params>();
           insert.wide_slots.data = insert.slots.data;
         });
  expect("first16", AS_OP_PAGED_ATTENTION, 1, "v_wide", "is not v_wide of rope_kv_insert",
         [](OpParams& p, const Given&) {
           auto& attention = p.get<as_paged_attention_params>();
           attention.v_wide.data.data = attention.k_wide.data.data;
         });
  expect("tiny-llama-fp8", AS_OP_PAGED_ATTENTION, 1, "k_wide", "no row of its layer has 16 bits",
         [](OpParams& p, const Given&) {
           auto& attention = p.get<as_paged_attention_params>();
           attention.k_wide = attention.k_cache;
         });
  // Batches of chunks: another size, tables of other groups, what is of whole requests.
  const auto local = [](const Given& given) {
    return given.ran.at(AS_OP_LOCAL_BATCH).get<as_local_batch_params>();
  };
  expect("tiny-llama4", AS_OP_LOCAL_BATCH, -1, "chunk", "is 16; the model's is 32",
         [](OpParams& p, const Given&) { p.get<as_local_batch_params>().chunk = 16; });
  expect("tiny-llama4", AS_OP_LOCAL_BATCH, -1, "tables", "is that of group 0, not that of group 1",
         [](OpParams& p, const Given& given) {
           auto& batch = p.get<as_local_batch_params>();
           batch.tables.data =
               given.ran.at(AS_OP_BLOCK_TABLES).get<as_block_tables_params>().tables.data;
         });
  expect("tiny-llama4", AS_OP_PAGED_ATTENTION, 1, "table",
         "is that of group 1, not that of group 2", [&](OpParams& p, const Given& given) {
           p.get<as_paged_attention_params>().table.data = local(given).local_tables.data;
         });
  expect("tiny-llama4", AS_OP_PAGED_ATTENTION, 0, "seq_lens",
         "is not local_seq_lens of local_batch", [&](OpParams& p, const Given& given) {
           p.get<as_paged_attention_params>().seq_lens.data = local(given).seq_lens.data;
         });
  expect("tiny-llama4", AS_OP_PAGED_ATTENTION, 3, "positions", "is not positions of slot_mapping",
         [&](OpParams& p, const Given& given) {
           p.get<as_paged_attention_params>().positions.data = local(given).local_positions.data;
         });
  // A table where nothing is rotated.
  expect("tiny-llama4", AS_OP_ROPE_KV_INSERT, 3, "rope.table", "is not that of layer 3",
         [](OpParams& p, const Given& given) {
           p.get<as_rope_kv_insert_params>().rope.table = given.session.parts().ropes[0].table;
         });
  expect("tiny-llama", AS_OP_PAGED_ATTENTION, 1, "q", "its input q is not q_out of rope_kv_insert",
         [](OpParams& p, const Given& given) {
           p.get<as_paged_attention_params>().q.data =
               given.ran.at(AS_OP_ROPE_KV_INSERT).get<as_rope_kv_insert_params>().q.data;
         });
  expect("tiny-llama", AS_OP_PAGED_ATTENTION, 1, "v_cache", "v_cache of rope_kv_insert",
         [](OpParams& p, const Given&) {
           auto& attention = p.get<as_paged_attention_params>();
           attention.v_cache = attention.k_cache;
         });
}

}  // namespace dense_audit_test
}  // namespace attnscope
