// Whole sessions over odd shapes: every op beside both references for prompt lengths around the
// window, the compress ratios and the top-k limit, for 1, 8 and 64 heads, and for chunks of 1, 2
// and 5 tokens, so that requests take part in a step with several query tokens.
#include <fmt/format.h>

#include "engine/family/models.h"
#include "tests/golden/scenario_run.h"

namespace attnscope {
namespace odd_shapes_test {

struct Shape {
  std::vector<std::int64_t> lengths;
  int heads;
  std::int64_t token_budget;
  std::int64_t new_tokens;
  std::vector<int> layers;
  const char* profile;
};

void PrintTo(const Shape& s, std::ostream* out) {
  *out << fmt::format("heads {}, budget {}, {} requests, {}", s.heads, s.token_budget,
                      s.lengths.size(), s.profile);
}

Scenario scenario_of(const Shape& shape) {
  Scenario s;
  s.name = "odd";
  s.model = *preset("tiny", shape.layers);
  s.model.heads = shape.heads;
  s.model.o_groups = shape.heads >= 8 ? shape.heads / 4 : 1;
  s.model.switches = *profile_switches(shape.profile);
  s.seed = 11;
  s.pool_blocks = 1500;
  s.limits = {shape.token_budget, 16};
  s.decode_steps = shape.new_tokens;
  for (std::size_t i = 0; i < shape.lengths.size(); ++i) {
    ScenarioRequest request;
    request.name = fmt::format("r{}", i);
    for (std::int64_t t = 0; t < shape.lengths[i]; ++t) {
      request.tokens.push_back(static_cast<std::int32_t>(
          (t * 37 + static_cast<std::int64_t>(i) * 11 + t * t / 7) % 256));
    }
    request.max_new_tokens = shape.new_tokens;
    s.requests.push_back(request);
  }
  return s;
}

class OddShapes : public testing::TestWithParam<Shape> {};

TEST_P(OddShapes, NothingIsWrong) { run_and_check(scenario_of(GetParam())); }

INSTANTIATE_TEST_SUITE_P(
    All, OddShapes,
    testing::Values(Shape{{1, 3, 4, 7, 8}, 8, 5, 6, {0, 1, 2, 3}, "vllm"},
                    Shape{{1, 2, 5}, 1, 2, 4, {0, 1, 2}, "vllm"},
                    Shape{{4, 1}, 8, 1, 3, {0, 1, 2, 3}, "deepseek"},
                    Shape{{127, 128, 129}, 8, 64, 4, {0, 1, 2, 3}, "vllm"},
                    Shape{{126, 3, 130}, 64, 100, 3, {0, 1, 2}, "vllm"},
                    Shape{{127, 128}, 1, 53, 3, {1, 2}, "deepseek"},
                    Shape{{255, 256, 1}, 8, 201, 3, {1, 2, 3}, "vllm"},
                    Shape{{257}, 8, 61, 2, {2}, "vllm"}, Shape{{260}, 8, 90, 2, {0}, "vllm"},
                    Shape{{2051, 5}, 1, 700, 3, {1}, "vllm"},
                    Shape{{2049}, 1, 1000, 2, {1, 2}, "deepseek"},
                    Shape{{131, 1, 257}, 8, 97, 3, {0, 1, 2, 3}, "vllm,projections=fp8"},
                    Shape{{129, 260}, 8, 200, 3, {0, 1, 2}, "deepseek,projections=fp8"}));

}  // namespace odd_shapes_test
}  // namespace attnscope
