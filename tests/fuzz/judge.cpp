#include "tests/fuzz/judge.h"

#include <fstream>
#include <sstream>

namespace attnscope::fuzz {

std::string judge_error(const Error& error, const std::string& file) {
  if (error.code != AS_BAD_INPUT) return "code " + std::to_string(error.code) + ": " + error.text();
  if (error.message.empty()) return "an error without a message";
  const std::string name = file.substr(file.rfind('/') + 1);
  if (error.text().find(name) == std::string::npos) return "no file named: " + error.text();
  if (error.text().find('\n') != std::string::npos) return "more than a line: " + error.text();
  return "";
}

std::string read_bytes(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

void write_bytes(const std::string& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

}  // namespace attnscope::fuzz
