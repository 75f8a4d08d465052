#include "tests/fuzz/parsers.h"

#include <fstream>

#include "engine/config/scenario.h"
#include "engine/model/hf_config.h"
#include "engine/trace/tolerances.h"

namespace attnscope::fuzz {
namespace {

template <class T>
std::string judge(const Result<T>& result, const std::string& file) {
  if (result) return "";
  const Error& error = result.error();
  if (error.code != AS_BAD_INPUT) return "code " + std::to_string(error.code) + ": " + error.text();
  if (error.message.empty()) return "an error without a message";
  const std::string name = file.substr(file.rfind('/') + 1);
  if (error.text().find(name) == std::string::npos) return "no file named: " + error.text();
  if (error.text().find('\n') != std::string::npos) return "more than a line: " + error.text();
  return "";
}

}  // namespace

std::string feed(Parser parser, const std::string& bytes, const std::string& scratch_file) {
  std::ofstream(scratch_file, std::ios::binary) << bytes;
  switch (parser) {
    case Parser::kScenario:
      return judge(load_scenario(scratch_file), scratch_file);
    case Parser::kModelConfig:
      return judge(read_hf_config(scratch_file), scratch_file);
    case Parser::kTolerances:
      return judge(Tolerances::load(scratch_file), scratch_file);
  }
  return "no such parser";
}

}  // namespace attnscope::fuzz
