#include "kernels/params/kernel_launch.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace attnscope {
namespace {

// Without what stands in front of the last "::" that is in no brackets.
std::string last_part(const std::string& name) {
  std::size_t from = 0;
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<' || name[i] == '(') ++depth;
    if (name[i] == '>' || name[i] == ')') --depth;
    if (depth == 0 && (name.compare(i, 2, "::") == 0 || name[i] == ' ')) {
      from = i + (name[i] == ' ' ? 1 : 2);
    }
  }
  return name.substr(from);
}

}  // namespace

std::string kernel_name(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), std::free);
  if (status != 0 || plain == nullptr) return mangled;
  std::string name = plain.get();
  // The parameters are the last brackets.
  int depth = 0;
  for (std::size_t i = name.size(); i-- > 0;) {
    if (name[i] == ')') ++depth;
    if (name[i] == '(' && --depth == 0) {
      name.resize(i);
      break;
    }
  }
  for (const char* part : {"(anonymous namespace)::", "attnscope::cuda::", "attnscope::"}) {
    const std::string s = part;
    for (std::size_t at = name.find(s); at != std::string::npos; at = name.find(s, at)) {
      name.erase(at, s.size());
    }
  }
  return last_part(name);
}

}  // namespace attnscope
