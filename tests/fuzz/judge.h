// What is asked of every answer to bad input, and the files that inputs pass through.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/params/result.h"

namespace attnscope::fuzz {

// Empty for an AS_BAD_INPUT in one line that names `file`, else what is wrong with the error.
std::string judge_error(const Error& error, const std::string& file);

std::string read_bytes(const std::string& file);
void write_bytes(const std::string& file, const std::string& bytes);

// What a test needs to begin with; throws where it failed.
template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().text());
  return std::move(*result);
}

}  // namespace attnscope::fuzz
