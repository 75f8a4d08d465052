// libFuzzer target for all parsers of user files; ATTNSCOPE_FUZZ names the one to feed. run.sh runs
// all of them: ./attnscope test --level nightly --part fuzz.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tests/fuzz/parsers.h"

namespace {

attnscope::fuzz::Parser chosen_parser() {
  const char* name = std::getenv("ATTNSCOPE_FUZZ");
  const auto parser = attnscope::fuzz::parser_by_name(name != nullptr ? name : "");
  if (parser) return *parser;
  std::fprintf(stderr, "ATTNSCOPE_FUZZ must be one of:");
  for (const char* known : attnscope::fuzz::kParserNames) std::fprintf(stderr, " %s", known);
  std::fprintf(stderr, "\n");
  std::exit(2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  static const attnscope::fuzz::Parser parser = chosen_parser();
  static const std::string file = (std::filesystem::temp_directory_path() /
                                   ("attnscope-fuzz-" + std::to_string(getpid()) + ".json"))
                                      .string();
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const std::string wrong = attnscope::fuzz::feed(parser, bytes, file);
  if (!wrong.empty()) {
    std::fprintf(stderr, "%s\n", wrong.c_str());
    std::abort();
  }
  return 0;
}
