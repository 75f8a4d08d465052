// Choice of the SIMD level, once per process.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(ATTNSCOPE_SIMD_X86)
#include <cpuid.h>
#endif

#include "kernels/cpu/simd/simd.h"

namespace attnscope::cpu::simd {
namespace {

#if defined(ATTNSCOPE_SIMD_X86)
// Not among what every compiler's __builtin_cpu_supports knows.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

const Kernels& choose() {
  const Levels levels = runnable_levels();
  const Kernels& best = *levels.items[levels.count - 1];
  const char* wanted = std::getenv("ATTNSCOPE_SIMD");
  if (wanted == nullptr || *wanted == '\0') return best;
  for (int i = 0; i < levels.count; ++i) {
    if (std::strcmp(levels.items[i]->name, wanted) == 0) return *levels.items[i];
  }
  std::fprintf(stderr, "ATTNSCOPE_SIMD=%s is not a level of this machine; allowed:", wanted);
  for (int i = 0; i < levels.count; ++i) std::fprintf(stderr, " %s", levels.items[i]->name);
  std::fprintf(stderr, "; using %s\n", best.name);
  return best;
}

}  // namespace

Levels runnable_levels() {
  Levels levels = {{&generic::table()}, 1};
#if defined(ATTNSCOPE_SIMD_X86)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) {
    levels.items[levels.count++] = &avx2::table();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
      levels.items[levels.count++] = &avx512::table();
      if (__builtin_cpu_supports("avx512bf16")) {
        levels.items[levels.count++] = &avx512_bf16::table();
      }
    }
  }
#endif
  return levels;
}

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

}  // namespace attnscope::cpu::simd
