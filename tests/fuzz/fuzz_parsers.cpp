// libFuzzer target: the first byte picks the parser, the rest is the file.
//   cmake --preset fuzz && build/fuzz/tests/fuzz_parsers -max_total_time=60
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/parsers.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  static const std::string kFile = "/tmp/attnscope-fuzz-" + std::to_string(getpid()) + ".json";
  if (size == 0) return 0;
  using attnscope::fuzz::Parser;
  const Parser parser = static_cast<Parser>(data[0] % 3);
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string wrong = attnscope::fuzz::feed(parser, bytes, kFile);
  if (!wrong.empty()) {
    std::fprintf(stderr, "%s\n", wrong.c_str());
    std::abort();
  }
  return 0;
}
