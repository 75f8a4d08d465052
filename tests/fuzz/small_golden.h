// A folder with one golden of a small scenario, computed by the engine alone, and what is asked of
// it when its files are no longer what they were.
#pragma once

#include <string>

#include "engine/golden/golden_values.h"

namespace attnscope::fuzz {

inline constexpr const char* kGoldenName = "small";

class SmallGolden {
 public:
  // Creates the folder, runs the golden and accepts its values. Throws when that fails.
  explicit SmallGolden(const std::string& folder);

  const std::string& folder() const { return folder_; }
  std::string definition_file() const;
  std::string accepted_file() const;
  // What both files held at the beginning.
  const std::string& definition() const { return definition_; }
  const std::string& accepted() const { return accepted_; }

  // Reads the files as they are now and compares them with the run, as a run would. Empty, or what
  // is wrong with the answer.
  std::string judge() const;

 private:
  std::string folder_, definition_, accepted_;
  GoldenValues received_;
};

}  // namespace attnscope::fuzz
