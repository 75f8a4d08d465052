// Which attention backend is taken and why: every rule, orders by GPU, names, models.
#include "engine/backend/attention_selector.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "engine/backend/attention_request.h"
#include "engine/backend/attention_rules.h"
#include "engine/family/models.h"

namespace attnscope {
namespace attention_selector_test {

using Names = std::vector<std::string>;

AttentionRequest plain(const char* gpu = "sm_90") {
  AttentionRequest request;
  request.model = "a model";
  request.heads = 32;
  request.kv_heads = 8;
  request.head_size = request.value_size = 128;
  EXPECT_TRUE(set_platform(request, gpu));
  return request;
}

AttentionRequest latent(const char* gpu = "sm_90") {
  AttentionRequest request = plain(gpu);
  request.mla = true;
  request.heads = 128;
  request.kv_heads = 1;
  request.head_size = 576;
  request.value_size = 512;
  request.nope_dim = 128;
  return request;
}

AttentionRequest of_v4(const char* gpu = "sm_90") {
  AttentionRequest request = attention_request(*preset("v4-flash"));
  EXPECT_TRUE(set_platform(request, gpu));
  return request;
}

BackendSelection selected(const AttentionRequest& request) {
  static const AttentionRegistry kRegistry;
  auto selection = explain_backends(kRegistry, request);
  EXPECT_TRUE(selection) << selection.error().text();
  return *selection;
}

std::string taken(const AttentionRequest& request) {
  const BackendSelection selection = selected(request);
  if (selection.chosen < 0) return "none";
  const BackendVerdict& v = selection.verdicts[static_cast<std::size_t>(selection.chosen)];
  return v.variant.empty() ? v.backend->name : v.backend->name + " " + v.variant;
}

const BackendVerdict& verdict(const BackendSelection& selection, const std::string& name) {
  for (const BackendVerdict& v : selection.verdicts) {
    if (v.backend->name == name) return v;
  }
  ADD_FAILURE() << name;
  return selection.verdicts.front();
}

struct RuleCase {
  const char* rule;
  const char* backend;
  AttentionRequest holds;  // nothing is broken
  std::function<void(AttentionRequest&)> ask;
  const char* asked;
  const char* allowed;
};

std::vector<RuleCase> rule_cases() {
  using R = AttentionRequest;
  return {
      {"layer kind", "FLASH_ATTN", plain(), [](R& r) { r.kind = AttentionLayerKind::kMamba1; },
       "mamba1", "attention"},
      {"platform", "ROCM_ATTN", plain("rocm"), [](R& r) { (void)set_platform(r, "cpu"); }, "cpu",
       "rocm"},
      {"model", "FLASHMLA_SPARSE_DSV4", of_v4(), [](R& r) { r.model_type = "other"; }, "other",
       "layers of deepseek_v4"},
      {"head size", "FLASHINFER", plain(), [](R& r) { r.head_size = r.value_size = 96; }, "96",
       "64, 128, 256"},
      {"value size", "FLASH_ATTN", plain(), [](R& r) { r.value_size = 64; }, "64",
       "that of keys, 128"},
      {"dtype", "FLASH_ATTN", plain(), [](R& r) { r.dtype = "float32"; }, "float32",
       "float16, bfloat16"},
      {"cache dtype", "FLASH_ATTN", plain("sm_80"), [](R& r) { r.cache_dtype = "fp8"; }, "fp8",
       "auto, float16, bfloat16"},
      {"block size", "FLASH_ATTN", plain(), [](R& r) { r.block_size = 24; }, "24",
       "multiples of 16"},
      {"prefix", "FLASH_ATTN", plain(), [](R& r) { r.mm_prefix = true; }, "bidirectional prefixes",
       "no bidirectional prefixes"},
      {"MLA", "FLASH_ATTN", plain(), [](R& r) { r.mla = true; }, "MLA",
       "keys and values a head alone"},
      {"sinks", "FLASHINFER", plain(), [](R& r) { r.sinks = true; }, "sinks", "no sinks"},
      {"sparse", "FLASHMLA", latent(), [](R& r) { r.sparse = true; }, "a selection of rows",
       "all rows alone"},
      {"head scales", "TRITON_ATTN", plain(), [](R& r) { r.head_scales = true; }, "scales a head",
       "no scales a head"},
      {"first tokens", "TRITON_ATTN", plain(), [](R& r) { r.first_tokens_16bit = 32; },
       "the first 32 tokens in 16 bits", "one format for all tokens"},
      {"compute capability", "FLASH_ATTN", plain("sm_80"),
       [](R& r) { (void)set_platform(r, "sm_75"); }, "7.5", "8.0 and newer"},
      {"attention type", "FLASHINFER", plain(), [](R& r) { r.type = AttentionType::kEncoder; },
       "encoder", "decoder"},
      {"non-causal", "TRITON_ATTN", plain(), [](R& r) { r.non_causal = true; },
       "non-causal decoders", "no non-causal decoders"},
      {"batch invariance", "FLASHINFER", plain(), [](R& r) { r.batch_invariant = true; },
       "batch invariance", "no batch invariance"},
      {"connector", "ROCM_ATTN", plain("rocm"), [](R& r) { r.kv_connector = true; },
       "cache connector", "no cache connector"},
      {"combination", "FLASHINFER_MLA", latent("sm_100"), [](R& r) { r.nope_dim = 64; },
       "64 dims without RoPE a head, the kernel has 128", "not together"},
      {"ALiBi", "FLEX_ATTENTION", plain(), [](R& r) { r.alibi = true; }, "ALiBi", "no ALiBi"},
      {"soft cap", "FLEX_ATTENTION", plain(), [](R& r) { r.soft_cap = 20; }, "20", "no soft cap"},
      {"window", "FLASHMLA", latent(), [](R& r) { r.window = 4096; }, "4096 tokens", "no window"},
  };
}

TEST(BackendRules, EachIsBrokenByWhatItAsksForAlone) {
  const AttentionRegistry registry;
  std::set<std::string> seen;
  for (const RuleCase& one : rule_cases()) {
    SCOPED_TRACE(one.rule);
    const AttentionBackend* backend = registry.find(one.backend);
    ASSERT_NE(backend, nullptr);
    for (const BrokenRule& b : broken_rules(*backend, one.holds)) ADD_FAILURE() << describe(b);
    AttentionRequest asked = one.holds;
    one.ask(asked);
    const auto broken = broken_rules(*backend, asked);
    ASSERT_EQ(broken.size(), 1u);
    EXPECT_EQ(broken[0].rule, one.rule);
    EXPECT_EQ(broken[0].asked, one.asked);
    EXPECT_EQ(broken[0].allowed, one.allowed);
    seen.insert(one.rule);
  }
  for (const BackendRule& rule : backend_rules()) EXPECT_EQ(seen.count(rule.name), 1u) << rule.name;
}

TEST(BackendRules, CombinationsOfEachBackend) {
  const AttentionRegistry registry;
  const auto first = [&](const char* name, const AttentionRequest& request) {
    const auto broken = broken_rules(*registry.find(name), request);
    return broken.empty() ? std::string() : describe(broken.back());
  };
  AttentionRequest sinks = plain("sm_80");
  sinks.sinks = true;
  EXPECT_EQ(first("FLASH_ATTN", sinks),
            "combination: asked sinks on compute capability below 9.0, allowed not together");
  EXPECT_EQ(first("FLASHMLA", latent("sm_100")),
            "combination: asked dense FlashMLA on another GPU than Hopper, allowed not together");
  AttentionRequest sparse = latent("sm_100");
  sparse.sparse = true;
  EXPECT_EQ(first("FLASHINFER_MLA_SPARSE", sparse), "");
  sparse.nope_dim = 192;
  EXPECT_EQ(first("FLASHINFER_MLA_SPARSE", sparse),
            "combination: asked 192 dims without RoPE a head, the kernel has 128, allowed not "
            "together");
}

// Layers of MLA refuse what the selector does not look at.
TEST(BackendRules, LayersOfMlaRefuseBiasCapAndWindow) {
  for (const char* name : {"FLASH_ATTN_MLA", "TRITON_MLA", "FLASHMLA_SPARSE", "CUTLASS_MLA"}) {
    AttentionRequest request = latent(std::string(name) == "CUTLASS_MLA" ? "sm_100" : "sm_90");
    request.sparse = std::string(name) == "FLASHMLA_SPARSE";
    request.alibi = true;
    request.soft_cap = 30;
    request.window = 128;
    const BackendSelection selection = selected(request);
    const BackendVerdict& v = verdict(selection, name);
    EXPECT_TRUE(v.accepted()) << name;
    EXPECT_EQ(v.broken.size(), 3u) << name;
  }
}

TEST(BackendOrder, OfKeysAndValuesByGpu) {
  const Names flash{"FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT"};
  const Names flashinfer{"FLASHINFER", "FLASH_ATTN", "TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT"};
  EXPECT_EQ(backend_order(plain("sm_80")), flash);
  EXPECT_EQ(backend_order(plain("sm_90")), flash);
  EXPECT_EQ(backend_order(plain("sm_100")), flashinfer);
  EXPECT_EQ(backend_order(plain("sm_120")), flash);
  AttentionRequest request = plain("sm_100");
  request.non_causal = true;
  EXPECT_EQ(backend_order(request), flash);
  request.value_size = 64;
  EXPECT_EQ(backend_order(request).front(), "FLASH_ATTN_DIFFKV");
}

TEST(BackendOrder, OfLatentRowsByGpuCacheAndHeads) {
  const Names hopper{"FLASH_ATTN_MLA", "FLASHMLA", "FLASHINFER_MLA", "TRITON_MLA",
                     "FLASHMLA_SPARSE"};
  EXPECT_EQ(backend_order(latent("sm_80")), hopper);
  EXPECT_EQ(backend_order(latent("sm_90")), hopper);
  Names blackwell{"FLASHINFER_MLA", "CUTLASS_MLA",     "FLASH_ATTN_MLA",       "FLASHMLA",
                  "TRITON_MLA",     "FLASHMLA_SPARSE", "FLASHINFER_MLA_SPARSE"};
  AttentionRequest request = latent("sm_100");
  EXPECT_EQ(backend_order(request), blackwell);
  std::swap(blackwell[5], blackwell[6]);
  request.heads = 16;
  EXPECT_EQ(backend_order(request), blackwell);
  request.heads = 17;
  EXPECT_NE(backend_order(request), blackwell);
  request.cache_dtype = "fp8";
  EXPECT_EQ(backend_order(request), blackwell);
}

TEST(BackendOrder, OfOtherPlatforms) {
  AttentionRequest rows = latent("rocm");
  EXPECT_EQ(backend_order(plain("rocm")),
            (Names{"ROCM_ATTN", "ROCM_AITER_FA", "ROCM_AITER_UNIFIED_ATTN", "TRITON_ATTN",
                   "TURBOQUANT"}));
  EXPECT_EQ(backend_order(rows), (Names{"ROCM_AITER_MLA", "TRITON_MLA", "ROCM_AITER_TRITON_MLA"}));
  rows.sparse = true;
  EXPECT_EQ(backend_order(rows), Names{"ROCM_AITER_MLA_SPARSE"});
  EXPECT_TRUE(set_platform(rows, "xpu"));
  EXPECT_EQ(backend_order(rows), Names{"XPU_MLA_SPARSE"});
  EXPECT_EQ(backend_order(latent("xpu")), Names{"TRITON_MLA"});
  AttentionRequest single = plain("xpu");
  EXPECT_EQ(taken(single), "FLASH_ATTN XPU");
  single.dtype = "float32";
  EXPECT_EQ(taken(single), "TRITON_ATTN");
  EXPECT_EQ(taken(plain("cpu")), "CPU_ATTN");
  EXPECT_EQ(taken(latent("cpu")), "none");
}

TEST(FlashVersion, ByGpuHeadSizeAndBias) {
  const auto version = [](const char* gpu, int head, bool alibi) {
    AttentionRequest request = plain(gpu);
    request.head_size = head;
    request.alibi = alibi;
    return flash_version(request);
  };
  EXPECT_EQ(version("sm_80", 128, false), 2);
  EXPECT_EQ(version("sm_89", 128, false), 2);
  EXPECT_EQ(version("sm_90", 256, false), 3);
  EXPECT_EQ(version("sm_90", 128, true), 2);
  EXPECT_EQ(version("sm_100", 128, false), 4);
  EXPECT_EQ(version("sm_103", 129, false), 2);
  EXPECT_EQ(version("sm_100", 192, false), 4);
  EXPECT_EQ(version("sm_100", 64, true), 2);
  EXPECT_EQ(version("sm_120", 128, false), 2);
}

// With the version go the cache's dtypes, sinks, scales and graphs.
TEST(FlashVersion, SaysWhatTheBackendHas) {
  AttentionRequest request = plain("sm_90");
  request.cache_dtype = "fp8";
  request.sinks = request.head_scales = true;
  EXPECT_EQ(taken(request), "FLASH_ATTN FA3");
  EXPECT_EQ(verdict(selected(request), "FLASH_ATTN").graph, GraphSupport::kAlways);
  request.alibi = true;
  const auto selection = selected(request);
  EXPECT_EQ(verdict(selection, "FLASH_ATTN").variant, "FA2");
  EXPECT_EQ(verdict(selection, "FLASH_ATTN").broken.size(), 3u);
  EXPECT_EQ(verdict(selection, "FLASH_ATTN").graph, GraphSupport::kUniformBatch);
  EXPECT_EQ(verdict(selected(plain("sm_90")), "FLASHINFER").graph,
            GraphSupport::kSingleTokenDecode);
  EXPECT_EQ(verdict(selected(plain("sm_100")), "FLASHINFER").graph, GraphSupport::kUniformBatch);
}

TEST(BackendSelection, OfOurModelsByGpu) {
  const auto of = [](const char* name, const char* gpu) {
    AttentionRequest request = attention_request(*preset(name));
    EXPECT_TRUE(set_platform(request, gpu));
    return taken(request);
  };
  EXPECT_EQ(of("tiny-llama", "sm_80"), "FLASH_ATTN FA2");
  EXPECT_EQ(of("tiny-llama", "sm_90"), "FLASH_ATTN FA3");
  EXPECT_EQ(of("tiny-llama", "sm_100"), "FLASH_ATTN FA4");  // heads of 32 dims
  EXPECT_EQ(of("tiny-gemma", "sm_100"), "FLASHINFER TRTLLM");
  EXPECT_EQ(of("tiny-mqa", "sm_80"), "TRITON_ATTN");  // sinks
  EXPECT_EQ(of("tiny-mqa", "sm_90"), "FLASH_ATTN FA3");
  EXPECT_EQ(of("tiny-mqa", "sm_100"), "FLASHINFER TRTLLM");
  EXPECT_EQ(of("v4-flash", "sm_80"), "none");
  EXPECT_EQ(of("v4-flash", "sm_90"), "FLASHMLA_SPARSE_DSV4");
  EXPECT_EQ(of("v4-flash", "sm_100"), "FLASHMLA_SPARSE_DSV4");
  const BackendSelection v4 = selected(of_v4());
  EXPECT_EQ(v4.block_size, 256);
  EXPECT_EQ(verdict(v4, "FLASHMLA_SPARSE").broken.size(), 2u);  // head size, sinks
}

TEST(BackendSelection, TakesBlockSizeAndLayoutOfTheBackend) {
  BackendSelection selection = selected(plain("sm_100"));
  EXPECT_EQ(selection.layout, "HND");
  EXPECT_EQ(selection.block_size, 16);
  selection = selected(plain("sm_90"));
  EXPECT_EQ(selection.layout, "NHD");
  AttentionRequest rows = latent("sm_90");
  rows.backend = "FLASHMLA";
  EXPECT_EQ(selected(rows).block_size, 64);
  rows.block_size = 128;
  EXPECT_EQ(selected(rows).block_size, 128);
}

TEST(BackendSelection, SaysWhatTheBlockSizeAloneKeepsOut) {
  AttentionRequest request = plain("sm_90");
  request.block_size = 24;
  const BackendSelection selection = selected(request);
  EXPECT_EQ(taken(request), "FLEX_ATTENTION");
  ASSERT_EQ(selection.notes.size(), 1u);
  EXPECT_EQ(selection.notes[0],
            "The block size 24 alone keeps out FLASH_ATTN (FA3), FLASHINFER (native), TRITON_ATTN, "
            "which would be tried before.");
}

TEST(BackendSelection, NamedOneIsTakenOrRefusedWithItsReasons) {
  AttentionRequest request = plain("sm_90");
  request.backend = "triton_attn";
  EXPECT_EQ(taken(request), "TRITON_ATTN");
  request.backend = "TREE_ATTN";  // tried only where it is named
  EXPECT_EQ(taken(request), "TREE_ATTN");
  EXPECT_EQ(describe(selected(request)), "a model on sm_90: TREE_ATTN, as named.");
  request.backend = "FLASHMLA";
  const BackendSelection selection = selected(request);
  EXPECT_EQ(selection.chosen, -1);  // and no other in its place
  const auto chosen = chosen_backend(selection);
  ASSERT_FALSE(chosen);
  EXPECT_EQ(chosen.error().code, AS_BAD_INPUT);
  EXPECT_EQ(chosen.error().text(),
            "a model on sm_90: FLASHMLA was named and is refused: MLA: asked keys and values a "
            "head, allowed MLA alone; change what is asked, or leave --backend out");
}

TEST(BackendSelection, NoneIsAnErrorWithAllReasons) {
  AttentionRequest request = plain("sm_75");
  request.sinks = true;
  request.cache_dtype = "turboquant_k8v4";
  const auto chosen = chosen_backend(selected(request));
  ASSERT_FALSE(chosen);
  for (const char* part :
       {"no attention backend accepts it", "FLASH_ATTN (FA2) (", "TURBOQUANT (",
        "compute capability: asked 7.5, allowed 8.0 and newer", "choose another GPU"}) {
    EXPECT_NE(chosen.error().text().find(part), std::string::npos) << part;
  }
}

// vLLM's choice has fallen when the layer's class refuses; another one would have done.
TEST(BackendSelection, RefusalOfTheLayerIsAnErrorBehindTheChoice) {
  AttentionRequest request = plain("sm_90");
  request.alibi = true;
  request.dtype = "float32";
  request.type = AttentionType::kEncoderOnly;
  request.mm_prefix = request.non_causal = true;  // leaves FLEX_ATTENTION alone
  const BackendSelection selection = selected(request);
  EXPECT_EQ(taken(request), "FLEX_ATTENTION");
  ASSERT_EQ(selection.notes.size(), 1u);
  const auto chosen = chosen_backend(selection);
  ASSERT_FALSE(chosen);
  EXPECT_NE(chosen.error().text().find("FLEX_ATTENTION refuses to make the layer: ALiBi"),
            std::string::npos);
  AttentionRequest other = plain("sm_100");
  other.alibi = true;
  EXPECT_EQ(taken(other), "FLASHINFER TRTLLM");
  EXPECT_NE(selected(other).notes.at(0).find("FLASH_ATTN (FA2) would make it"), std::string::npos);
}

TEST(BackendSelection, ValuesThatNobodyHasAreErrors) {
  const AttentionRegistry registry;
  const auto error = [&](const std::function<void(AttentionRequest&)>& change) {
    AttentionRequest request = plain();
    change(request);
    const auto selection = explain_backends(registry, request);
    EXPECT_FALSE(selection);
    return selection ? std::string() : selection.error().text();
  };
  using R = AttentionRequest;
  EXPECT_NE(error([](R& r) { r.dtype = "bf16"; }).find("allowed: float16, bfloat16, float32"),
            std::string::npos);
  EXPECT_NE(error([](R& r) { r.cache_dtype = "fp8_ds"; }).find("did you mean fp8_ds_mla?"),
            std::string::npos);
  EXPECT_NE(error([](R& r) { r.backend = "FLASH_ATT"; }).find("did you mean FLASH_ATTN?"),
            std::string::npos);
  EXPECT_NE(error([](R& r) { r.head_size = 0; }).find("head size 0 is out of range"),
            std::string::npos);
  EXPECT_NE(error([](R& r) { r.value_size = 1 << 20; }).find("value size"), std::string::npos);
  EXPECT_NE(error([](R& r) { r.block_size = -1; }).find("block size -1"), std::string::npos);
}

// Every backend is in the answer once, whether it is tried or not.
TEST(BackendSelection, HasAWordOnEveryBackend) {
  const AttentionRegistry registry;
  for (const char* gpu : {"sm_80", "sm_90", "sm_100", "rocm", "xpu", "cpu"}) {
    for (const AttentionRequest& request : {plain(gpu), latent(gpu), of_v4(gpu)}) {
      const BackendSelection selection = selected(request);
      std::set<std::string> names;
      for (const BackendVerdict& v : selection.verdicts) names.insert(v.backend->name);
      EXPECT_EQ(names.size(), registry.all().size());
      EXPECT_EQ(selection.verdicts.size(), registry.all().size());
    }
  }
  AttentionRequest state = plain();
  state.kind = AttentionLayerKind::kGatedDelta;
  EXPECT_EQ(taken(state), "GDN_ATTN");
  state.kind = AttentionLayerKind::kMamba2;
  EXPECT_EQ(taken(state), "MAMBA2");
  EXPECT_FALSE(verdict(selected(state), "MAMBA2").backend->runs_here());
}

}  // namespace attention_selector_test
}  // namespace attnscope
