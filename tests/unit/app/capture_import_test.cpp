// Whole captures from a dump: a run of ours, written under the names that vLLM's map has, comes
// back as a capture in which every op equals ours.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "app/reports/capture_record.h"
#include "app/wiring/wiring.h"
#include "engine/capture/capture.h"
#include "engine/capture/capture_diff.h"
#include "engine/family/deepseek_v4/deepseek_v4.h"
#include "engine/family/models.h"
#include "engine/opcase/import_case.h"
#include "engine/session/place.h"
#include "engine/tensorfile/tensor_writer.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/layout/records.h"
#include "kernels/params/attention_params.h"
#include "kernels/params/compressor_params.h"
#include "kernels/params/indexer_params.h"
#include "tests/unit/app/cli_fixture.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace capture_import_test {

constexpr std::int64_t kFirst = 2, kSteps = 4;  // steps of our run that are dumped: 2 and 3

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// The tensors of one step under the names of a map.
class Dump {
 public:
  // fnuz: codes and scales as an engine with e4m3fnuz keeps them.
  explicit Dump(bool fnuz = false) : fnuz_(fnuz) {}
  void add(const ImportOp& map, const OpCase& kept, int layer) {
    const auto name = [&](const std::string& text) {
      return replaced(text, "{layer}", std::to_string(layer));
    };
    for (const auto& [tap, tensor] : map.tensors) {
      const auto it = kept.tensors.find(tap);
      if (it == kept.tensors.end() || !tensor.values.empty()) continue;
      if (tensor.stack.empty()) {
        tensors_.emplace(name(tensor.name), it->second);
        continue;
      }
      ASSERT_EQ(it->second.shape[0], static_cast<std::int64_t>(tensor.stack.size())) << tap;
      const std::size_t bytes = it->second.bytes.size() / tensor.stack.size();
      for (std::size_t i = 0; i < tensor.stack.size(); ++i) {
        StoredTensor part = it->second;
        part.shape.erase(part.shape.begin());
        const auto from = it->second.bytes.begin() + static_cast<std::ptrdiff_t>(i * bytes);
        part.bytes.assign(from, from + static_cast<std::ptrdiff_t>(bytes));
        tensors_.emplace(name(tensor.stack[i]), std::move(part));
      }
    }
    for (const auto& [tap, cache] : map.caches) {
      const auto it = kept.caches.find(tap);
      if (it != kept.caches.end()) add_rows(name(cache.name), it->second);
    }
  }
  void add_integers(const std::string& name, const std::vector<std::int32_t>& values) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(values.data());
    tensors_[name] = {AS_I32,
                      {static_cast<std::int64_t>(values.size())},
                      {},
                      {bytes, bytes + values.size() * sizeof(values[0])}};
  }
  void write(const std::string& file) {
    TensorWriter writer;
    for (const auto& [name, tensor] : tensors_) writer.add(name, stored_view(tensor));
    for (const auto& [name, pages] : pages_) {
      writer.add(name, ElementType::kU8,
                 {pages.blocks, static_cast<std::int64_t>(pages.bytes.size()) / pages.blocks},
                 pages.bytes);
    }
    auto size = writer.write(file);
    ASSERT_TRUE(size) << size.error().text();
  }

 private:
  struct Pages {
    std::int64_t blocks = 0;
    std::vector<std::uint8_t> bytes;
  };
  void add_rows(const std::string& name, const StoredCache& cache) {
    Pages& pages = pages_[name];
    const std::int64_t page = as_page_bytes(cache.record, cache.width, cache.rows_per_block);
    if (pages.bytes.empty()) {
      pages.blocks = cache.blocks;
      pages.bytes.assign(static_cast<std::size_t>(cache.blocks * page), 0xee);
    }
    as_cache to{};
    to.record = cache.record;
    to.rows_per_block = cache.rows_per_block;
    to.width = cache.width;
    to.data = make_tensor(pages.bytes.data(), {cache.blocks, page});
    const auto payload = static_cast<std::size_t>(as_payload_bytes(cache.record, cache.width));
    const auto scales = static_cast<std::size_t>(as_scale_bytes(cache.record));
    const std::uint8_t* row = cache.rows.data();
    for (const std::int64_t slot : cache.slots) {
      const as_row_address at = as_cache_row(&to, slot);
      std::memcpy(at.payload, row, payload);
      if (scales > 0) std::memcpy(at.scales, row + payload, scales);
      if (fnuz_) make_fnuz(cache.record, at);
      row += payload + scales;
    }
  }

  // A code stands for half the value: twice the scale. There is no -0.
  static void make_fnuz(std::int32_t record, const as_row_address& row) {
    if (record != AS_RECORD_LATENT && record != AS_RECORD_INDEX_FP8) return;
    const int codes = record == AS_RECORD_LATENT ? AS_NOPE_DIM : AS_INDEX_DIM;
    for (int i = 0; i < codes; ++i) {
      if (row.payload[i] == 0x80) row.payload[i] = 0;
    }
    if (record == AS_RECORD_LATENT) {
      for (int b = 0; b < AS_QUANT_BLOCKS; ++b) ++row.scales[b];
      return;
    }
    float scale;
    std::memcpy(&scale, row.scales, sizeof(scale));
    scale *= 2;
    std::memcpy(row.scales, &scale, sizeof(scale));
  }

  bool fnuz_;
  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, Pages> pages_;
};

// As wide as the preset that the imports name.
Scenario of_preset() {
  Scenario s = small_scenario();
  s.model = *preset("tiny");
  return s;
}

class CaptureImportTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    // vLLM's map for the dimensions of the tiny model, rotary tables computed.
    const ModelConfig model = *preset("tiny");
    std::string text = read(ATTNSCOPE_SOURCE_DIR "/assets/maps/vllm.json");
    text = replaced(text, "[-1, 64, 512]", fmt::format("[-1, {}, 512]", model.heads));
    text = replaced(text, "[-1, 64, 128]", fmt::format("[-1, {}, 128]", model.index_heads));
    text = replaced(text, ", \"table\": \"layers.{layer}.cos_sin_cache\"", "");
    text = replaced(text, "\"factor\": 16", fmt::format("\"factor\": {}", model.yarn_factor));
    map_ = write("map.json", text);
    record_ours();
    dump(*small_session(References::kNone, of_preset()));
  }

  void record_ours() {
    RecordOptions options;
    options.run.session.references = References::kNone;
    options.run.session.threads = 2;
    options.run.steps = kSteps;
    options.capture.level = CaptureLevel::kFull;
    options.rows = 0;
    auto made = record_scenario(of_preset(), all_lanes(), options, path("ours.acap"), nullptr);
    ASSERT_TRUE(made) << made.error().text();
  }

  // Of our run, or of one whose lanes are others.
  void dump(Session& session, bool fnuz = false) {
    auto map = read_import_map(map_);
    ASSERT_TRUE(map) << map.error().text();
    ops_ = 0;
    for (std::int64_t step = kFirst; step < kSteps; ++step) {
      Dump dump(fnuz);
      const ModelConfig model = of_preset().model;
      for (const ImportOp* op : ops_of_layer(*map, std::nullopt)) {
        const auto id = static_cast<as_op_id>(op->op.id);
        if (as_op_find(id)->phase != AS_PHASE_BEFORE) continue;
        ASSERT_TRUE(go_to(session, {step, -1, id}));
        add_op(session, *op, -1, dump);
      }
      for (int i = 0; i < model.num_layers(); ++i) {
        const int layer = model.layers[static_cast<std::size_t>(i)];
        for (const ImportOp* op : ops_of_layer(*map, layer_type_name(model, i))) {
          const auto id = static_cast<as_op_id>(op->op.id);
          if (as_op_find(id)->phase != AS_PHASE_LAYER) continue;
          if (auto ok = go_to(session, {step, layer, id}); !ok) continue;  // not of this type
          ASSERT_EQ(last_place(session), (Place{step, layer, id}));
          add_op(session, *op, layer, dump);
        }
      }
      for (const ImportOp* op : ops_of_layer(*map, std::nullopt)) {
        const auto id = static_cast<as_op_id>(op->op.id);
        if (as_op_find(id)->phase != AS_PHASE_AFTER) continue;
        ASSERT_TRUE(go_to(session, {step, -1, id}));
        add_op(session, *op, -1, dump);
      }
      const StepMetadata& m = session.metadata();
      dump.add_integers("input_ids", m.tokens);
      dump.add_integers("logits_indices", {m.sample_rows.begin(), m.sample_rows.end()});
      dump.write(path(fmt::format("step{}.safetensors", step)));
    }
  }

  void add_op(const Session& session, const ImportOp& op, int layer, Dump& dump) {
    auto kept = keep_case(op.op, session.last_params().data(), {});
    ASSERT_TRUE(kept) << kept.error().text();
    dump.add(op, *kept, layer);
    ++ops_;
  }

  Outcome import(std::vector<std::string> more = {}) const {
    std::vector<std::string> command = {"case", "import", map_};
    for (std::int64_t step = kFirst; step < kSteps; ++step) {
      command.push_back(path(fmt::format("step{}.safetensors", step)));
    }
    command.insert(command.end(), {"-o", path("theirs.acap"), "--model", "tiny", "--force"});
    for (const ScenarioRequest& r : of_preset().requests) {
      command.insert(command.end(), {"--request", fmt::format("{}:{}", r.name, r.tokens.size())});
    }
    command.insert(command.end(), more.begin(), more.end());
    return run(command);
  }

  std::string map_;
  int ops_ = 0;
};

TEST_F(CaptureImportTest, ADumpOfOurOwnIsEqualToOurs) {
  const Outcome made = import();
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_NE(made.out.find(fmt::format("2 steps, {} ops", ops_)), std::string::npos) << made.out;
  auto ours = Capture::open(path("ours.acap")), theirs = Capture::open(path("theirs.acap"));
  ASSERT_TRUE(theirs) << theirs.error().text();
  const auto whole = (*theirs)->verify();
  EXPECT_TRUE(whole) << whole.error().text();
  auto tolerances = Tolerances::load("");
  ASSERT_TRUE(tolerances);
  auto diff = diff_captures(**ours, **theirs, *tolerances);
  ASSERT_TRUE(diff) << diff.error().text();
  EXPECT_FALSE(diff->first) << diff->first->text;
  EXPECT_TRUE(diff->same());
  EXPECT_EQ(diff->steps, kSteps - kFirst);
  EXPECT_GE(diff->counts[static_cast<std::size_t>(DiffVerdict::kEqual)], ops_);
  for (const OpDiff& op : diff->ops) {
    EXPECT_EQ(op.verdict, DiffVerdict::kUnknown) << as_op_find(op.a.op)->name;
  }
  // What panels read of it: tables by group, and attention with its weights.
  auto trace = (*theirs)->trace(1);
  ASSERT_TRUE(trace);
  auto own = (*ours)->trace(kFirst + 1);
  ASSERT_TRUE(own);
  EXPECT_EQ((*trace)->metadata.positions, (*own)->metadata.positions);
  EXPECT_EQ((*trace)->metadata.tokens, (*own)->metadata.tokens);
  EXPECT_EQ((*trace)->metadata.sample_rows, (*own)->metadata.sample_rows);
  EXPECT_EQ((*trace)->sampled, (*own)->sampled);
  const OpTrace* head = (*trace)->find(-1, AS_OP_LM_HEAD);
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->worst <= Verdict::kRounding, true) << verdict_name(head->worst);
  ASSERT_NE(head->tap("y"), nullptr);
  EXPECT_EQ(head->tap("y")->reference.dtype, AS_F64) << "ref.sim's values are beside them";
  EXPECT_EQ((*trace)->metadata.seq_lens, (*own)->metadata.seq_lens);
  EXPECT_EQ((*trace)->metadata.tensor("swa_lens")->numbers,
            (*own)->metadata.tensor("swa_lens")->numbers);
  const int layer = (*theirs)->info()->config.layers[0];
  const OpTrace* attention = (*trace)->find(layer, AS_OP_SPARSE_ATTENTION);
  ASSERT_NE(attention, nullptr);
  ASSERT_NE(attention->attention, nullptr);
  EXPECT_LT(attention->attention->lse_error, 1e-2f);
  const Outcome shown = run({"show", path("theirs.acap"), "--step", "1"});
  EXPECT_EQ(shown.code, 0);
  EXPECT_EQ(shown.out.find("blamed"), std::string::npos) << shown.out;
  // Unjudged where nobody asks for it.
  const Outcome plain = import({"--references", "none"});
  EXPECT_EQ(plain.code, 0) << plain.err;
  EXPECT_EQ(plain.out.find("ref.sim"), std::string::npos) << plain.out;
}

// The heart of it: the dump of an engine with a bug, and the op that has it.
TEST_F(CaptureImportTest, TheBugOfAnotherEngineIsNamedAndOnlyThat) {
  for (const auto& [op, mutant] :
       std::vector<std::pair<std::string, std::string>>{{"sparse_attention", "own_row_missed"},
                                                        {"compress_insert", "pooled_by_mean"},
                                                        {"q_rope_kv_insert", "key_not_rotated"},
                                                        {"lm_head", "head_in_bf16"},
                                                        {"sample", "sample_second_best"}}) {
    dump(*small_session(References::kNone, of_preset(), fmt::format("{}=mutant:{}", op, mutant)));
    const Outcome made = import();
    EXPECT_EQ(made.code, 1) << mutant << made.out << made.err;
    const Outcome shown = run({"show", path("theirs.acap"), "--json"});
    ASSERT_EQ(shown.code, 0) << shown.err;
    const auto blamed = nlohmann::json::parse(shown.out).at("blamed");
    ASSERT_EQ(blamed.size(), 1u) << mutant << ": " << blamed.dump(1);
    EXPECT_EQ(blamed[0].at("op"), op) << mutant;
    // Where, and what is there.
    const auto sentence = blamed[0].at("sentence").get<std::string>();
    for (const char* part : {"token ", "(request ", ", position ", " instead of "}) {
      EXPECT_NE(sentence.find(part), std::string::npos) << mutant << ": " << sentence;
    }
    EXPECT_NE(run({"show", path("theirs.acap")}).out.find("blamed: " + op), std::string::npos);
  }
}

// Rows a rounding away from ours, and codes that follow from them: as another device has them.
template <as_op_id kOp, class Params>
std::int32_t quantised_from_neighbours(const void* params, const as_call* call, as_error* error) {
  const as_op_fn run = cpu::lane()->ops[kOp];
  if (const std::int32_t status = run(params, call, error); status != AS_OK) return status;
  Params again = *static_cast<const Params*>(params);
  as_tensor* row = nullptr;
  if constexpr (kOp == AS_OP_Q_ROPE_KV_INSERT) row = &again.kv_row;
  if constexpr (kOp == AS_OP_INDEXER_Q) row = &again.q_row;
  if constexpr (kOp == AS_OP_COMPRESS_INSERT || kOp == AS_OP_INDEXER_COMPRESS_INSERT) {
    row = &again.row;
  }
  auto* bits = static_cast<std::uint16_t*>(row->data);
  for (std::int64_t i = 0; i < as_tensor_numel(row); i += 3) {
    const bool number = (bits[i] & 0x7fff) != 0 && (bits[i] & 0x7fff) < 0x7f7f;
    if (number) bits[i] = static_cast<std::uint16_t>(bits[i] + (i % 2 == 0 ? 1 : -1));
  }
  again.rows_given = 1;
  return run(&again, call, error);
}

TEST_F(CaptureImportTest, CodesOfRowsOneRoundingAwayAreRight) {
  LaneRegistry lanes = all_lanes();
  Lane lane = *lanes.find("cpu");
  lane.name = "neighbours";
  lane.ops[AS_OP_Q_ROPE_KV_INSERT] =
      quantised_from_neighbours<AS_OP_Q_ROPE_KV_INSERT, as_q_rope_kv_insert_params>;
  lane.ops[AS_OP_INDEXER_Q] = quantised_from_neighbours<AS_OP_INDEXER_Q, as_indexer_q_params>;
  lane.ops[AS_OP_COMPRESS_INSERT] =
      quantised_from_neighbours<AS_OP_COMPRESS_INSERT, as_compress_insert_params>;
  lane.ops[AS_OP_INDEXER_COMPRESS_INSERT] =
      quantised_from_neighbours<AS_OP_INDEXER_COMPRESS_INSERT, as_compress_insert_params>;
  lanes.add(lane);
  SessionOptions options;
  options.references = References::kNone;
  options.lanes = {"neighbours"};
  options.threads = 2;
  auto session = Session::create(of_preset(), lanes, options);
  ASSERT_TRUE(session) << session.error().text();
  dump(**session);
  const Outcome made = import();
  EXPECT_EQ(made.code, 0) << made.out << made.err;
  auto theirs = Capture::open(path("theirs.acap"));
  ASSERT_TRUE(theirs);
  std::set<as_op_id> followed;
  for (const auto& summary : (*theirs)->summaries()) {
    for (const TapResult& r : summary->results) {
      if (r.note.find("follow from a row one rounding away") != std::string::npos) {
        EXPECT_EQ(r.verdict, Verdict::kRounding);
        followed.insert(r.op);
      }
    }
  }
  EXPECT_EQ(followed.size(), 4u) << "each op that quantises";
}

TEST_F(CaptureImportTest, RowsAndIdsThatDoNotFitAreSaid) {
  const std::string ids =
      write("ids.json", replaced(read(map_), "\"input_ids\"", "\"logits_indices\""));
  const std::string rows =
      write("rows.json", replaced(read(map_), "\"logits_indices\"", "\"input_ids\""));
  for (const auto& [map, what] :
       std::vector<std::pair<std::string, std::string>>{{ids, "token ids of"}, {rows, "have"}}) {
    const Outcome made = run({"case", "import", map, path("step2.safetensors"), "-o",
                              path("x.acap"), "--model", "tiny"});
    EXPECT_EQ(made.code, 3) << made.out;
    EXPECT_NE(made.err.find(what), std::string::npos) << made.err;
  }
}

// Whatever a dump holds: outputs of all ops, of some, of none.
TEST_F(CaptureImportTest, ACaptureOfADumpEqualsItself) {
  for (const std::vector<std::string>& without :
       std::vector<std::vector<std::string>>{{}, {".lse"}, {".lse", ".attn_out"}}) {
    for (std::int64_t step = kFirst; step < kSteps; ++step) {
      auto file = TensorFile::open(path(fmt::format("step{}.safetensors", step)));
      ASSERT_TRUE(file);
      TensorWriter writer;
      for (const TensorEntry& e : file->tensors()) {
        const bool left_out = std::ranges::any_of(
            without, [&](const std::string& end) { return e.name.ends_with(end); });
        if (!left_out) writer.add(e.name, e.type, e.shape, e.data, e.bytes);
      }
      ASSERT_TRUE(writer.write(path("fewer.safetensors")));
      std::filesystem::rename(path("fewer.safetensors"),
                              path(fmt::format("step{}.safetensors", step)));
    }
    const Outcome made = import();
    ASSERT_EQ(made.code, 0) << made.out << made.err;
    const Outcome diff = run({"diff", path("theirs.acap"), path("theirs.acap"), "--json"});
    EXPECT_EQ(diff.code, 0) << without.size() << diff.out << diff.err;
    const auto json = nlohmann::json::parse(diff.out);
    EXPECT_TRUE(json.at("same"));
    EXPECT_EQ(json.at("counts").at("unknown"), 0) << diff.out;
    for (const char* side : {"a", "b"}) {
      const auto& share = json.at("compared").at(side);
      EXPECT_EQ(share.at("tokens"), share.at("all_tokens"));
      EXPECT_EQ(share.at("ops"), share.at("all_ops"));
      EXPECT_GT(share.at("ops"), 10);
    }
  }
  // It is no answer for two that read other things.
  for (std::int64_t step = kFirst; step < kSteps; ++step) {
    const std::string name = path(fmt::format("step{}.safetensors", step));
    auto file = TensorFile::open(name);
    ASSERT_TRUE(file);
    TensorWriter writer;
    std::vector<std::uint8_t> changed;
    for (const TensorEntry& e : file->tensors()) {
      const bool sinks = e.name == "layers.1.attn_sink";
      if (sinks) {
        changed.assign(e.data, e.data + e.bytes);
        changed[2] ^= 1;
      }
      writer.add(e.name, e.type, e.shape, sinks ? changed.data() : e.data, e.bytes);
    }
    ASSERT_FALSE(changed.empty());
    ASSERT_TRUE(writer.write(path("other.safetensors")));
    std::filesystem::rename(path("other.safetensors"), name);
  }
  std::filesystem::rename(path("theirs.acap"), path("first.acap"));
  ASSERT_EQ(import().code, 0);
  const Outcome diff = run({"diff", path("first.acap"), path("theirs.acap")});
  EXPECT_EQ(diff.code, 1) << diff.out;
}

// Steps of one op whose tokens have positions, of which no tensor says whose they are.
class RequestsOfADump : public CliTest {
 protected:
  void step(const std::string& name, const std::vector<std::int64_t>& positions,
            const std::vector<std::int32_t>& token_to_req = {}) {
    const auto tokens = static_cast<std::int64_t>(positions.size());
    const std::vector<std::uint16_t> zeros(positions.size() * 8 * 512, 0);
    TensorWriter writer;
    writer.add("o", ElementType::kBf16, {tokens, 8, 512}, zeros);
    writer.add("out", ElementType::kBf16, {tokens, 8, 512}, zeros);
    writer.add("positions", ElementType::kI64, {tokens}, positions);
    if (!token_to_req.empty()) writer.add("whose", ElementType::kI32, {tokens}, token_to_req);
    ASSERT_TRUE(writer.write(path(name)));
    steps_.push_back(path(name));
  }
  Outcome import() {
    const std::string map = write("map.json", R"({"format": "attnscope-import-map", "version": 1,
      "engine": "other", "token_to_req": {"name": "whose"}, "ops": {"inverse_rope": {
      "tensors": {"o": {"name": "o"}, "positions": {"name": "positions"}, "out": {"name": "out"}},
      "ropes": {"rope": {"base": 10000, "factor": 1}}}}})");
    std::vector<std::string> command = {"case", "import", map};
    command.insert(command.end(), steps_.begin(), steps_.end());
    command.insert(command.end(),
                   {"-o", path("x.acap"), "--model", "tiny", "--layers", "0", "--force"});
    steps_.clear();
    return run(command);
  }
  // Of each step, the requests of its tokens.
  std::vector<std::vector<std::int32_t>> requests() const {
    std::vector<std::vector<std::int32_t>> out;
    auto capture = Capture::open(path("x.acap"));
    EXPECT_TRUE(capture) << capture.error().text();
    if (!capture) return out;
    for (const auto& summary : (*capture)->summaries()) {
      auto trace = (*capture)->trace(summary->step);
      EXPECT_TRUE(trace && *trace);
      if (trace && *trace) out.push_back((*trace)->metadata.token_to_req);
    }
    return out;
  }
  std::vector<std::string> steps_;
};

TEST_F(RequestsOfADump, AreToldApartByTheirPositions) {
  using Requests = std::vector<std::vector<std::int32_t>>;
  step("0.safetensors", {0, 1, 2, 0, 1});
  step("1.safetensors", {3, 2});
  step("2.safetensors", {4});
  step("3.safetensors", {3, 0, 1});
  Outcome made = import();
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(requests(), (Requests{{0, 0, 0, 1, 1}, {0, 1}, {0}, {1, 2, 2}}));
  EXPECT_NE(made.out.find("3 requests are told apart by the positions"), std::string::npos)
      << made.out;
  const Outcome diff = run({"diff", path("x.acap"), path("x.acap")});
  EXPECT_EQ(diff.code, 0) << diff.out << diff.err;
  // Two of one length go on together; one alone could be either.
  step("0.safetensors", {0, 1, 0, 1});
  step("1.safetensors", {2, 2});
  made = import();
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(requests(), (Requests{{0, 0, 1, 1}, {0, 1}}));
  // One request, of which a step was not dumped.
  step("0.safetensors", {0, 1, 2});
  step("1.safetensors", {4});
  made = import();
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(requests(), (Requests{{0, 0, 0}, {0}}));
  EXPECT_EQ(made.out.find("told apart"), std::string::npos) << made.out;
}

TEST_F(RequestsOfADump, AreAskedForWherePositionsLeaveThemOpen) {
  for (const std::vector<std::int64_t>& second :
       std::vector<std::vector<std::int64_t>>{{2}, {2, 7}, {2, 3}}) {
    step("0.safetensors", {0, 1, 0, 1});
    step("1.safetensors", second);
    const Outcome refused = import();
    EXPECT_EQ(refused.code, 3) << second.back() << refused.out;
    EXPECT_NE(refused.err.find("step 1: tokens from "), std::string::npos) << refused.err;
    EXPECT_NE(refused.err.find("\"token_to_req\" in the map"), std::string::npos) << refused.err;
  }
  // As the dump says it.
  step("0.safetensors", {0, 1, 0, 1}, {0, 0, 1, 1});
  step("1.safetensors", {2}, {1});
  const Outcome made = import();
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(requests(), (std::vector<std::vector<std::int32_t>>{{0, 0, 1, 1}, {1}}));
}

TEST_F(CaptureImportTest, AnotherValueIsFoundByItsOp) {
  // One element of one output of the dump is another.
  auto file = TensorFile::open(path("step3.safetensors"));
  ASSERT_TRUE(file);
  TensorWriter writer;
  std::vector<std::uint8_t> changed;
  int found = 0;
  for (const TensorEntry& e : file->tensors()) {
    if (e.name == "layers.1.attn_out") {
      changed.assign(e.data, e.data + e.bytes);
      changed[1] ^= 0x40;  // the exponent of a bf16 number
      writer.add(e.name, e.type, e.shape, changed.data(), e.bytes);
      ++found;
    } else {
      writer.add(e.name, e.type, e.shape, e.data, e.bytes);
    }
  }
  ASSERT_EQ(found, 1);
  ASSERT_TRUE(writer.write(path("other.safetensors")));
  std::filesystem::rename(path("other.safetensors"), path("step3.safetensors"));
  EXPECT_EQ(import().code, 1) << "wrong beside ref.sim";
  const Outcome diff = run({"diff", path("ours.acap"), path("theirs.acap")});
  EXPECT_EQ(diff.code, 1) << diff.out << diff.err;
  EXPECT_NE(diff.out.find("sparse_attention"), std::string::npos) << diff.out;
}

// An op that a capture has no place for is named, counted and judged all the same.
TEST_F(CaptureImportTest, AHelperOpIsNotLeftOutInSilence) {
  const std::string map =
      write("helper.json", replaced(read(map_), "\"ops\": {", R"("ops": {"workspace_attention": {
          "tensors": {"q": {"name": "ws.{layer}.q"}, "rows": {"name": "ws.{layer}.rows"},
                      "indices": {"name": "ws.{layer}.indices"},
                      "topk_length": {"name": "ws.{layer}.lens"},
                      "sinks": {"name": "ws.{layer}.sinks"}, "o": {"name": "ws.{layer}.o"}},
          "numbers": {"scale": 0.0442}},)"));
  // One key and no sink: the output is its row.
  const auto helper = [&](float error) {
    const std::vector<float> q(1024, 0.5f), sinks = {-1e4f, -1e4f};
    std::vector<float> rows(512), o;
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i % 32) / 16;
    for (int head = 0; head < 2; ++head) o.insert(o.end(), rows.begin(), rows.end());
    o[700] += error;
    const std::vector<std::int32_t> indices = {0}, lens = {1};
    TensorWriter writer;
    writer.add("ws.1.q", ElementType::kF32, {1, 2, 512}, q);
    writer.add("ws.1.rows", ElementType::kF32, {1, 512}, rows);
    writer.add("ws.1.sinks", ElementType::kF32, {2}, sinks);
    writer.add("ws.1.indices", ElementType::kI32, {1, 1}, indices);
    writer.add("ws.1.lens", ElementType::kI32, {1}, lens);
    writer.add("ws.1.o", ElementType::kF32, {1, 2, 512}, o);
    ASSERT_TRUE(writer.write(path("helper.safetensors")));
  };
  const auto whole = [&](const std::vector<std::string>& more = {}) {
    std::vector<std::string> command = {"case",
                                        "import",
                                        map,
                                        path("step2.safetensors"),
                                        path("helper.safetensors"),
                                        "-o",
                                        path("x.acap"),
                                        "--model",
                                        "tiny",
                                        "--force"};
    command.insert(command.end(), more.begin(), more.end());
    return run(command);
  };
  helper(0);
  const Outcome right = whole();
  EXPECT_EQ(right.code, 0) << right.out << right.err;
  for (const char* text :
       {"left out: workspace_attention of layer 1: it is a helper op",
        "import it as a case: attnscope case import", "--op workspace_attention --layer 1",
        "; 1 ops left out of the capture: 1 taps, 0 wrong\n"}) {
    EXPECT_NE(right.out.find(text), std::string::npos) << text << '\n' << right.out;
  }
  helper(1);
  const Outcome wrong = whole();
  EXPECT_EQ(wrong.code, 1) << wrong.out << wrong.err;
  for (const char* text : {"workspace_attention of layer 1 of step 0: o is wrong",
                           "; 1 ops left out of the capture: 1 taps, 1 wrong\n"}) {
    EXPECT_NE(wrong.out.find(text), std::string::npos) << text << '\n' << wrong.out;
  }
  // As the case that it says.
  const Outcome one = run({"case", "import", map, path("helper.safetensors"), "-o", path("w.json"),
                           "--op", "workspace_attention", "--layer", "1", "--model", "tiny"});
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(run({"case", "run", path("w.json"), "--lane", "ref.sim"}).code, 1);
  const Outcome unjudged = whole({"--references", "none"});
  EXPECT_EQ(unjudged.code, 0) << unjudged.err;
  EXPECT_NE(unjudged.out.find("left out: workspace_attention"), std::string::npos);
  // A dump of nothing else.
  const Outcome alone = run(
      {"case", "import", map, path("helper.safetensors"), "-o", path("y.acap"), "--model", "tiny"});
  EXPECT_EQ(alone.code, 3);
  EXPECT_NE(alone.err.find("of workspace_attention they have; import it as a case"),
            std::string::npos)
      << alone.err;
}

// Every op is right by itself, and attention reads another list than there is.
TEST_F(CaptureImportTest, AListThatIsNotTheOneMadeIsAContradiction) {
  auto file = TensorFile::open(path("step3.safetensors"));
  ASSERT_TRUE(file);
  TensorWriter writer;
  std::vector<std::int32_t> list;
  for (const TensorEntry& e : file->tensors()) {
    if (e.name.ends_with(".lse") || e.name.ends_with(".attn_out")) continue;
    const bool stale = e.name == "layers.1.swa_indices";
    if (stale) {
      list.resize(e.bytes / 4);
      std::memcpy(list.data(), e.data, e.bytes);
      list[1] = list[0];
    }
    const auto* changed = reinterpret_cast<const std::uint8_t*>(list.data());
    writer.add(e.name, e.type, e.shape, stale ? changed : e.data, e.bytes);
  }
  ASSERT_FALSE(list.empty());
  ASSERT_TRUE(writer.write(path("stale.safetensors")));
  const auto made = [&](const std::vector<std::string>& more = {}) {
    std::vector<std::string> command = {
        "case",    "import", map_,     path("stale.safetensors"), "-o", path("x.acap"),
        "--model", "tiny",   "--force"};
    command.insert(command.end(), more.begin(), more.end());
    return run(command);
  };
  const Outcome stale = made();
  EXPECT_EQ(stale.code, 1) << stale.out << stale.err;
  for (const char* text :
       {" taps, 0 wrong\n",
        "contradiction: step 0, layer 1: sparse_attention was given other indices than swa_index "
        "put out: token 0, place 1: "}) {
    EXPECT_NE(stale.out.find(text), std::string::npos) << text << '\n' << stale.out;
  }
  EXPECT_TRUE(Capture::open(path("x.acap")));
  EXPECT_EQ(made({"--references", "none"}).code, 0);
}

// The caches of an engine with e4m3fnuz codes: ours again, but for the sign of zeros.
TEST_F(CaptureImportTest, ADumpWithFnuzCodesBecomesACapture) {
  const std::string plain = map_;
  std::string text = read(map_);
  for (const char* record : {"\"record\": \"latent\"", "\"record\": \"index_fp8\""}) {
    text = replaced(text, record, std::string(record) + ", \"codes\": \"e4m3fnuz\"");
  }
  map_ = write("fnuz.json", text);
  dump(*small_session(References::kNone, of_preset()), true);
  const Outcome made = import();
  EXPECT_EQ(made.code, 0) << made.out << made.err;
  EXPECT_NE(made.out.find(fmt::format("2 steps, {} ops", ops_)), std::string::npos) << made.out;
  auto ours = Capture::open(path("ours.acap")), theirs = Capture::open(path("theirs.acap"));
  ASSERT_TRUE(theirs) << theirs.error().text();
  auto own = (*ours)->trace(kFirst), other = (*theirs)->trace(0);
  ASSERT_TRUE(own);
  ASSERT_TRUE(other);
  int compared = 0;
  for (const auto& op : (*other)->ops) {
    const OpTrace* twin = (*own)->find(op->place.layer, op->place.op);
    ASSERT_NE(twin, nullptr);
    for (const RowsCopy& rows : op->rows) {
      const RowsCopy* of_ours = twin->cache_rows(rows.name);
      ASSERT_NE(of_ours, nullptr) << rows.name;
      ASSERT_EQ(rows.bytes.size(), of_ours->bytes.size());
      if (rows.record != AS_RECORD_LATENT && rows.record != AS_RECORD_INDEX_FP8) continue;
      for (std::size_t i = 0; i < rows.bytes.size(); ++i) {
        if (rows.bytes[i] == of_ours->bytes[i]) continue;
        ASSERT_EQ(of_ours->bytes[i], 0x80) << as_op_find(op->place.op)->name << " byte " << i;
        ASSERT_EQ(rows.bytes[i], 0);
      }
      ++compared;
    }
  }
  EXPECT_GT(compared, 0);
  // Read as if they were of the other kind, they are not ours.
  map_ = plain;
  EXPECT_EQ(import().code, 1);
}

TEST_F(CaptureImportTest, WhatDoesNotFitIsSaid) {
  const auto code = [&](const std::vector<std::string>& arguments) { return run(arguments).code; };
  const std::string dump = path("step2.safetensors"), out = path("x.acap");
  EXPECT_EQ(code({"case", "import", map_, dump, "-o", out}), 2) << "no model";
  EXPECT_EQ(code({"case", "import", map_, dump, "-o", out, "--model", "tiny", "--op", "wo_b"}), 2);
  EXPECT_EQ(code({"case", "import", map_, dump, "-o", out, "--model", "none"}), 3);
  EXPECT_EQ(code({"case", "import", map_, dump, "-o", out, "--model", "tiny", "--request", ":3"}),
            2);
  EXPECT_EQ(code({"case", "import", map_, dump, "-o", out, "--model", "tiny", "--request", "a:x"}),
            2);
  EXPECT_EQ(code({"case", "import", map_, dump, "-o", path("x.json"), "--request", "a"}), 2);
  // A model with other heads, and a map whose names are not in the dump.
  const Outcome heads = run({"case", "import", map_, dump, "-o", out, "--model", "v4-flash"});
  EXPECT_EQ(heads.code, 3);
  EXPECT_NE(heads.err.find("step 0, layer"), std::string::npos) << heads.err;
  const Outcome none = run({"case", "import", "hf", dump, "-o", out, "--model", "tiny"});
  EXPECT_EQ(none.code, 3);
  EXPECT_FALSE(std::filesystem::exists(out));
  // A type that no layer has.
  const std::string bad =
      write("bad.json", replaced(read(map_), "\"layers\": [\"SWA\"]", "\"layers\": [\"C8A\"]"));
  const Outcome type = run({"case", "import", bad, dump, "-o", out, "--model", "tiny"});
  EXPECT_EQ(type.code, 3);
  EXPECT_NE(type.err.find("allowed: SWA, C4A, C128A"), std::string::npos) << type.err;
}

// Each layer's cases by its type, and their outputs judged.
TEST_F(CaptureImportTest, CasesOfEachTypeOfLayerRun) {
  const ModelConfig model = *preset("tiny");
  for (int i = 0; i < model.num_layers(); ++i) {
    const std::string layer = std::to_string(model.layers[static_cast<std::size_t>(i)]);
    for (const char* op : {"q_rope_kv_insert", "compressor_state", "compress_insert",
                           "indexer_compressor_state", "indexer_compress_insert", "indexer_q",
                           "indexer_logits", "topk_to_slots", "sparse_attention", "inverse_rope"}) {
      const bool compressed = std::string_view(op).find("compress") != std::string_view::npos;
      const bool index = std::string_view(op).find("index") != std::string_view::npos ||
                         std::string_view(op) == "topk_to_slots";
      if (compressed && type_of_layer(model, i) == LayerType::kSwa) continue;
      if (index && type_of_layer(model, i) != LayerType::kC4A) continue;
      const Outcome made =
          run({"case", "import", map_, path("step3.safetensors"), "--model", "tiny", "--layer",
               layer, "--op", op, "-o", path("one.json"), "--force"});
      ASSERT_EQ(made.code, 0) << op << " of layer " << layer << ": " << made.err;
      const Outcome judged = run({"case", "run", path("one.json"), "--lane", "ref.sim"});
      // No token of the step completes an entry of 128.
      const bool empty = judged.out.find("the call has no element") != std::string::npos;
      EXPECT_EQ(empty, std::string_view(op) == "compress_insert" && model.ratio(i) == 128);
      EXPECT_EQ(judged.code, empty ? 1 : 0)
          << op << " of layer " << layer << ": " << judged.out << judged.err;
    }
  }
}

}  // namespace capture_import_test
}  // namespace attnscope
