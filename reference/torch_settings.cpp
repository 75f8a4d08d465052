#include "reference/torch_settings.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstdlib>

namespace attnscope::reference {
namespace {

constexpr int kZen5 = 0x1a;

// Unless the user has.
void set(const char* name, const std::string& value) {
  if (!value.empty()) setenv(name, value.c_str(), 0);
}

}  // namespace

Processor this_processor() {
  Processor p;
#if defined(__x86_64__)
  p.intel = __builtin_cpu_is("intel") != 0;
  p.amd = __builtin_cpu_is("amd") != 0;
  p.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  p.avx512 = p.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) != 0) {
    p.family = static_cast<int>(a >> 8 & 0xf);
    if (p.family == 0xf) p.family += static_cast<int>(a >> 20 & 0xff);
  }
#endif
  return p;
}

std::string openblas_core(const Processor& p) {
  const bool newer = p.intel || (p.amd && p.family >= kZen5);
  if (!newer || !p.avx2) return {};
  return p.avx512 ? "SkylakeX" : "Haswell";
}

void tell_libraries() {
  set("OPENBLAS_CORETYPE", openblas_core(this_processor()));
  set("OPENBLAS_THREAD_TIMEOUT", "14");  // 2^14 cycles
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) set("GOMP_SPINCOUNT", "1000");
}

}  // namespace attnscope::reference
