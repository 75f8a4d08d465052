// What the libraries under libtorch are told before they load, through variables of the environment
// that they read then. What the user has set stays.
#pragma once

#include <string>

namespace attnscope::reference {

// Of a processor.
struct Processor {
  bool intel = false, amd = false;
  int family = 0;  // 0x19 = Zen 3 and 4
  bool avx2 = false, avx512 = false;
};
Processor this_processor();

// OPENBLAS_CORETYPE: the kernels that OpenBLAS is to take, empty = its own choice. It knows
// processors by their numbers, and gives newer ones than itself kernels of 2004.
std::string openblas_core(const Processor& processor);

// Sets the variables; before threads begin. Threads of OpenBLAS and of OpenMP spin after a product
// until a time is over, which is short then.
//
// Seconds of one core for the default scenario with both references, Xeon of family 6, model 207
// (2 cores), OpenBLAS 0.3.21 in Debian 12, 2026-11-26: 67 to 84 untold, 39 to 46 with kernels
// chosen, 28 with threads that soon sleep as well. OpenMP's spinning costs beside other programs.
void tell_libraries();

}  // namespace attnscope::reference
