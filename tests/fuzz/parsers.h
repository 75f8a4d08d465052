// Feeds one input to a parser of user files through a real file, as a user's would come. Whatever
// the bytes, the parser must return: a value, or AS_BAD_INPUT with a message that names the file.
#pragma once

#include <string>

namespace attnscope::fuzz {

enum class Parser { kScenario, kModelConfig, kTolerances };

// Empty when all is well, else what is wrong with the answer.
std::string feed(Parser parser, const std::string& bytes, const std::string& scratch_file);

}  // namespace attnscope::fuzz
