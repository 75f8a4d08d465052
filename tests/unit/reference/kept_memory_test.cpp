// Memory of tensors is kept for the next ones, and no more of it than is said.
#include "reference/torch/kept_memory.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include "tests/unit/reference/lane_test.h"

namespace attnscope::reference {
namespace kept_memory_test {

std::int64_t page_faults() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return used.ru_minflt;
}

std::size_t resident() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0, pages = 0;
  file >> all >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// Norms of `rows` rows of 1024 numbers, each made of several arrays of that size; y = 1.
class Norms {
 public:
  explicit Norms(std::int64_t most)
      : most_(most), x_(static_cast<std::size_t>(most * kColumns), 3), y_(x_) {}
  void operator()(std::int64_t rows) {
    params_.x = over(x_, {rows, kColumns});
    params_.weight = over(weight_, {kColumns});
    params_.y = over(y_, {rows, kColumns});
    ASSERT_LE(rows, most_);
    run(exact_lane(), AS_OP_FINAL_NORM, params_);
    EXPECT_DOUBLE_EQ(y_[static_cast<std::size_t>(rows * kColumns - 1)], 1);
  }

 private:
  static constexpr std::int64_t kColumns = 1024;
  std::int64_t most_;
  Doubles x_, y_, weight_ = Doubles(kColumns, 1);
  as_rms_norm_params params_ = new_params<as_rms_norm_params>();
};

TEST(KeptMemory, IsTakenAgainByTensorsOfThatSize) {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 1 << 20);  // as in the app: what is freed goes back to the system
#endif
  constexpr std::int64_t kRows = 512;  // 4 MiB an array, 1024 pages
  Norms norms(kRows);
  for (int i = 0; i < 3; ++i) norms(kRows);
  const std::int64_t before = page_faults();
  for (int i = 0; i < 20; ++i) norms(kRows);
  EXPECT_LT(page_faults() - before, 1024);
}

// Also of many different sizes, none of which comes again.
TEST(KeptMemory, IsBounded) {
  Norms norms(6000);
  norms(8);  // libtorch is there
  const std::size_t before = resident();
  for (std::int64_t rows = 2000; rows <= 6000; rows += 500) norms(rows);
  EXPECT_LT(resident(), before + kKeptBytes + (std::size_t{16} << 20));
}

}  // namespace kept_memory_test
}  // namespace attnscope::reference
