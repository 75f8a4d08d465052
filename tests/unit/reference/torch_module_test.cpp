// libtorch is loaded when something needs it, and its absence is an error. Each test is a process
// of its own: what is loaded stays.
#include "reference/torch_module.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "reference/matmul.h"
#include "tests/unit/reference/lane_test.h"

namespace attnscope::reference {
namespace torch_module_test {

bool libtorch_is_loaded() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("libtorch") != std::string::npos) return true;
  }
  return false;
}

// y[9,1] = x[9,3] weight[1,3]^T, whose rows go to the BLAS.
std::int32_t product(as_error* error) {
  Doubles x(27, 2), weight = {1, 2, 3}, y(9);
  auto p = new_params<as_linear_params>();
  p.x = over(x, {9, 3});
  p.weight = over(weight, {1, 3});
  p.y = over(y, {9, 1});
  const std::int32_t status = exact_lane()->ops[AS_OP_LM_HEAD](&p, nullptr, error);
  return status == AS_OK && y != Doubles(9, 12) ? AS_MISMATCH : status;
}

std::int32_t norm() {
  Doubles x(4, 2), weight(4, 1), y(4);
  auto p = new_params<as_rms_norm_params>();
  p.x = over(x, {1, 4});
  p.weight = over(weight, {4});
  p.y = over(y, {1, 4});
  as_error error{};
  return exact_lane()->ops[AS_OP_ATTN_NORM](&p, nullptr, &error);
}

[[noreturn]] void leave(int code) {
  std::fflush(nullptr);
  std::_Exit(code);
}

class TorchModuleTest : public testing::Test {
 protected:
  TorchModuleTest() { testing::GTEST_FLAG(death_test_style) = "threadsafe"; }
};

TEST_F(TorchModuleTest, IsLoadedByTheFirstProduct) {
  const auto use = [] {
    if (libtorch_is_loaded()) leave(10);
    if (norm() != AS_OK) leave(11);
    if (libtorch_is_loaded()) leave(12);
    as_error error{};
    if (product(&error) != AS_OK) leave(13);
    leave(libtorch_is_loaded() ? 0 : 14);
  };
  EXPECT_EXIT(use(), testing::ExitedWithCode(0), "");
}

TEST_F(TorchModuleTest, IsReportedWhenItDoesNotLoad) {
  const auto use = [](const char* file) {
    setenv("ATTNSCOPE_TORCH_MODULE", file, 1);
    as_error error{};
    for (int i = 0; i < 2; ++i) {
      if (product(&error) != AS_NO_ENVIRONMENT) leave(10);
    }
    std::fprintf(stderr, "%s\n", error.message);
    if (torch_state().problem.empty() || norm() != AS_OK) leave(11);
    leave(0);
  };
  EXPECT_EXIT(use("/nowhere/module.so"), testing::ExitedWithCode(0),
              "ref.exact lm_head: libtorch does not load: /nowhere/module.so: .*; run ./attnscope");
  EXPECT_EXIT(use(ATTNSCOPE_SOURCE_DIR "/LICENSE"), testing::ExitedWithCode(0),
              "LICENSE: .*; run ./attnscope");
  EXPECT_EXIT(use("libm.so.6"), testing::ExitedWithCode(0), "libm.so.6: not a module of attnscope");
}

// Rows cover 0 .. n-1 once, and what they throw arrives where they were asked for.
TEST_F(TorchModuleTest, RowsMayThrow) {
  std::vector<int> seen(1000);
  const auto count = [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) ++seen[static_cast<std::size_t>(i)];
  };
  for_rows(1000, 8, count);
  for_rows(0, 8, count);
  EXPECT_EQ(seen, std::vector<int>(1000, 1));
  for (const std::int64_t grain : {8, 2000}) {
    EXPECT_THROW(for_rows(1000, grain, [](auto, auto) { throw BadInput("row"); }), BadInput);
  }
}

}  // namespace torch_module_test
}  // namespace attnscope::reference
