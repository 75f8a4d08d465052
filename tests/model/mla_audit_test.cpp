// What an op of absorbed MLA is given, planted otherwise between a session and the audit: each time
// the op, the layer and the right name are said, and of sound sessions nothing. ref.model, which
// absorbs nothing, agrees with sessions that do.
#include "app/wiring/mla/mla_audit.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "app/wiring/mla/mla_reference.h"
#include "engine/model/numbers.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/mla_params.h"
#include "kernels/params/tensor_view.h"
#include "tests/blame/dense_session.h"

namespace attnscope {
namespace mla_audit_test {

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
      : audit_(model, mla_numbers(session.parts().config), session.parts().config,
               session.parts().layout),
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
  MlaAudit audit_;
  as_op_id op_;
  int layer_;
  Change change_;
  std::map<as_op_id, OpParams> ran_;
};

std::vector<WrongWire> audit(const ModelConfig& model, as_op_id op = {}, int layer = -1,
                             const Change& change = {}) {
  const Scenario scenario = dense_scenario(model, 7, 91);
  auto session = session_of(scenario, References::kNone);
  auto right = mla_reference(scenario, nullptr);
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

TEST(MlaAudit, SaysNothingOfSoundSessions) {
  for (const char* name : {"tiny-v3", "tiny-v3.2"}) {
    for (const WrongWire& w : audit(*preset(name))) {
      ADD_FAILURE() << name << ' ' << w.what << ": " << w.note;
    }
  }
}

// Every layer's selection is its own: layers without an indexer see all, in ref.model too.
TEST(MlaAudit, LayersWithAndWithoutAnIndexer) {
  for (const int plain : {0, 1}) {
    SCOPED_TRACE(plain);
    ModelConfig model = *preset("tiny-v3.2");
    model.compress_ratios[to_size(plain)] = 0;
    for (const WrongWire& w : audit(model)) ADD_FAILURE() << w.what << ": " << w.note;
    Scenario scenario = dense_scenario(model, 7, 131);
    SessionOptions options;
    options.references = References::kSim;
    options.witness = true;
    options.threads = 2;
    auto session = Session::create(scenario, all_lanes(), options);
    ASSERT_TRUE(session) << session.error().text();
    int seen = 0, selected = 0;
    while (!(*session)->finished()) {
      const auto ok = (*session)->step();
      ASSERT_TRUE(ok) << ok.error().text();
      for (const TapResult& r : (*session)->history().back().results) {
        EXPECT_NE(r.verdict, Verdict::kWrong) << r.tap << ": " << r.note;
        seen += r.op == AS_OP_MLA_ATTENTION ? 1 : 0;
        selected += r.op == AS_OP_SPARSE_MLA_ATTENTION ? 1 : 0;
        EXPECT_EQ(r.op == AS_OP_SPARSE_MLA_ATTENTION && r.layer == plain, false);
      }
    }
    EXPECT_GT(seen, 0);
    EXPECT_EQ(seen, selected);
  }
}

TEST(MlaAudit, NamesWhatAnOpIsGivenInstead) {
  const auto expect = [](const char* model, as_op_id op, int layer, const std::string& what,
                         const std::string& note, const Change& change) {
    SCOPED_TRACE(std::string(as_op_find(op)->name) + ": " + note);
    const auto found = audit(*preset(model), op, layer, change);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].op, op);
    EXPECT_EQ(found[0].layer, layer);
    EXPECT_EQ(found[0].what, what);
    EXPECT_NE(found[0].note.find(note), std::string::npos) << found[0].note;
  };
  const auto weights = [](const Given& given, std::size_t layer, const char* name) {
    return given.session.parts().weights->layers[layer][name].tensor();
  };
  // Weights of another layer, and of another norm.
  expect("tiny-v3", AS_OP_MLA_V_UP, 1, "kv_b",
         "is model.layers.2.self_attn.kv_b_proj.weight, not model.layers.1.self_attn.kv_b_proj",
         [&](OpParams& p, const Given& given) {
           p.get<as_mla_v_up_params>().kv_b = weights(given, 2, "kv_b");
         });
  expect("tiny-v3.2", AS_OP_INDEX_KEY_INSERT, 0, "bias",
         "is model.layers.0.self_attn.indexer.k_norm.weight", [&](OpParams& p, const Given& given) {
           p.get<as_index_key_insert_params>().bias = weights(given, 0, "indexer.k_norm");
         });
  // Numbers.
  expect("tiny-v3", AS_OP_MLA_ATTENTION, 2, "scale", "the model's is 0.19",
         [](OpParams& p, const Given&) { p.get<as_mla_attention_params>().scale = 0.1; });
  expect("tiny-v3.2", AS_OP_INDEX_QUERY, 1, "hadamard", "is 0; the model's is 1",
         [](OpParams& p, const Given&) { p.get<as_index_query_params>().hadamard = 0; });
  expect("tiny-v3.2", AS_OP_INDEXER_LOGITS, 1, "index_scores", "is 2; the model's is 0",
         [](OpParams& p, const Given&) { p.get<as_indexer_logits_params>().weights.reserved = 2; });
  expect("tiny-v3.2", AS_OP_MLA_KV_INSERT, 1, "scale_rule", "is 1; the model's is 0",
         [](OpParams& p, const Given&) { p.get<as_mla_kv_insert_params>().scale_rule = 1; });
  // What another op put out.
  expect("tiny-v3.2", AS_OP_INDEX_QUERY, 0, "weights_raw", "is not y of index_weights_proj",
         [](OpParams& p, const Given& given) {
           p.get<as_index_query_params>().weights_raw =
               given.ran.at(AS_OP_INDEX_WEIGHTS_PROJ).get<as_linear_params>().x;
         });
  expect("tiny-v3.2", AS_OP_INDEXER_TOPK, 1, "lens", "is not seen_lens of slot_mapping",
         [](OpParams& p, const Given& given) {
           p.get<as_indexer_topk_params>().lens =
               given.ran.at(AS_OP_SLOT_MAPPING).get<as_slot_mapping_params>().token_to_req;
         });
  // The projection's end is the rotary key, its middle the latent.
  expect("tiny-v3", AS_OP_MLA_KV_INSERT, 0, "qkv", "is not y of q_kv_a_proj",
         [](OpParams& p, const Given& given) {
           p.get<as_mla_kv_insert_params>().qkv =
               given.ran.at(AS_OP_Q_KV_NORM).get<as_q_kv_norm_params>().kv;
         });
}

}  // namespace mla_audit_test
}  // namespace attnscope
