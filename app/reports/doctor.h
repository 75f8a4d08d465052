// What this machine and this build have, and what each missing piece costs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace attnscope {

struct DoctorLine {
  std::string what;   // "GPU"
  std::string found;  // version or "missing"
  std::string note;   // what a missing one costs; empty when all is well
  bool ok = true;
};

std::vector<DoctorLine> examine();

// Processor, cores, SIMD level, compiler: what a measured figure depends on.
nlohmann::json describe_machine();

}  // namespace attnscope
