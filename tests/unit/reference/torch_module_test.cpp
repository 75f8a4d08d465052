// libtorch is loaded when something needs it, and its absence is an error. Each test is a process
// of its own: what is loaded stays.
#include "reference/torch_module.h"

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "tests/unit/reference/lane_test.h"
#include "tests/unit/sanitizer.h"

namespace attnscope::reference {
namespace torch_module_test {

bool libtorch_is_loaded() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("libtorch") != std::string::npos) return true;
  }
  return false;
}

// y[9,1] = x[9,3] weight[1,3]^T
std::int32_t product(as_error* error) {
  Doubles x(27, 2), weight = {1, 2, 3}, y(9);
  auto p = new_params<as_linear_params>();
  p.x = over(x, {9, 3});
  p.weight = over(weight, {1, 3});
  p.y = over(y, {9, 1});
  const std::int32_t status = exact_lane()->ops[AS_OP_LM_HEAD](&p, nullptr, error);
  return status == AS_OK && y != Doubles(9, 12) ? AS_MISMATCH : status;
}

std::int32_t slots() {
  Int32s indices = {0, -1}, table = {4}, requests = {0}, out(2), lens(1);
  auto p = new_params<as_topk_to_slots_params>();
  p.indices = over(indices, {1, 2});
  p.table = over(table, {1, 1});
  p.token_to_req = over(requests, {1});
  p.slots = over(out, {1, 2});
  p.lens = over(lens, {1});
  as_error error{};
  return exact_lane()->ops[AS_OP_TOPK_TO_SLOTS](&p, nullptr, &error);
}

[[noreturn]] void leave(int code) {
  std::fflush(nullptr);
  std::_Exit(code);
}

class TorchModuleTest : public testing::Test {
 protected:
  TorchModuleTest() { testing::GTEST_FLAG(death_test_style) = "threadsafe"; }
};

TEST_F(TorchModuleTest, IsLoadedByTheFirstTensorProgram) {
  const auto use = [] {
    if (libtorch_is_loaded()) leave(10);
    if (slots() != AS_OK) leave(11);
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
    if (torch_state().problem.empty() || slots() != AS_OK) leave(11);
    leave(0);
  };
  EXPECT_EXIT(use("/nowhere/module.so"), testing::ExitedWithCode(0),
              "ref.exact lm_head: libtorch does not load: /nowhere/module.so: .*; run ./attnscope");
  EXPECT_EXIT(use(ATTNSCOPE_SOURCE_DIR "/LICENSE"), testing::ExitedWithCode(0),
              "LICENSE: .*; run ./attnscope");
  EXPECT_EXIT(use("libm.so.6"), testing::ExitedWithCode(0), "libm.so.6: not a module of attnscope");
}

// OpenBLAS waits without end where it finds no address space.
TEST_F(TorchModuleTest, IsNotTriedWhereAddressSpaceIsShort) {
  if (kAddressSanitizer) GTEST_SKIP() << "the sanitizer takes terabytes of address space itself";
  const auto use = [] {
    rlimit space{};
    getrlimit(RLIMIT_AS, &space);
    space.rlim_cur = 1100u << 20;
    if (setrlimit(RLIMIT_AS, &space) != 0) leave(10);
    as_error error{};
    if (product(&error) != AS_NO_ENVIRONMENT) leave(11);
    std::fprintf(stderr, "%s\n", error.message);
    leave(libtorch_is_loaded() ? 12 : 0);
  };
  EXPECT_EXIT(
      use(), testing::ExitedWithCode(0),
      "libtorch does not load: it needs 1.2 GiB of address space, and this process may have "
      "1.1; raise the limit \\(ulimit -v\\), or leave the references out");
}

TEST_F(TorchModuleTest, TheHostIsADeviceThatLoadsNothing) {
  const auto use = [] {
    if (!use_device("cpu")) leave(10);
    leave(libtorch_is_loaded() ? 11 : 0);
  };
  EXPECT_EXIT(use(), testing::ExitedWithCode(0), "");
}

// Of another device it is said at once that it is missing, and references go on as before.
TEST_F(TorchModuleTest, ADeviceThatIsNotThereIsAnError) {
  const auto use = [](const char* name, as_status expected) {
    const Result<void> used = use_device(name);
    if (used) leave(10);
    std::fprintf(stderr, "%s\n", used.error().text().c_str());
    if (used.error().code != expected) leave(11);
    as_error error{};
    leave(product(&error) == AS_OK ? 0 : 12);
  };
  EXPECT_EXIT(use("nonsense", AS_USAGE), testing::ExitedWithCode(0),
              "reference device 'nonsense' is none that libtorch knows");
  EXPECT_EXIT(use("meta", AS_USAGE), testing::ExitedWithCode(0),
              "reference device 'meta' has shapes alone and computes no numbers; usual: cpu, cuda");
  EXPECT_EXIT(use("mps", AS_USAGE), testing::ExitedWithCode(0),
              "reference device 'mps' has no float64, which references compute in");
  EXPECT_EXIT(use("cpu:5", AS_USAGE), testing::ExitedWithCode(0),
              "reference device 'cpu:5' does not exist: the host is one");
  EXPECT_EXIT(use("xla", AS_NO_ENVIRONMENT), testing::ExitedWithCode(0),
              "has no device 'xla' here: it was built without it; leave --reference-device out");
  EXPECT_EXIT(use("cuda:99", AS_NO_ENVIRONMENT), testing::ExitedWithCode(0),
              "has no device 'cuda:99' here: .*; leave --reference-device out");
}

}  // namespace torch_module_test
}  // namespace attnscope::reference
