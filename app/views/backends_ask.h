// What is asked of the choice of an attention backend besides what a model says: the options of
// `attnscope backends explain`, which the panel Backends has as controls.
//
//   BackendsAsk ask;
//   Result<void> ok = set_option(ask, "gpu", "sm_100");
//   Result<AttentionRequest> asked = with_asked(ask, attention_request(config));
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend/attention_backend.h"

namespace attnscope {

struct BackendsAsk {
  std::string gpu = "sm_90";  // or rocm, xpu, cpu
  // Empty: the model's.
  std::string dtype = {}, cache_dtype = {}, type = {};
  std::vector<std::string> with = {};  // features besides the model's, backend_features()
  std::string backend = {};            // that must be taken; empty = selected
  int block_size = 0;                  // 0 = the backend's own
  friend bool operator==(const BackendsAsk&, const BackendsAsk&) = default;
};

// Names of what layers may have besides what a configuration file says, and of their types.
std::span<const char* const> backend_features();
std::span<const char* const> attention_types();

// One of gpu, dtype, cache-dtype, block-size, type, with (names with , or + between), backend; an
// empty value, "model" or "none": as it was. AS_USAGE for an option, a feature or a type that there
// is not; whether a backend could have the value, explain_backends() says.
Result<void> set_option(BackendsAsk& ask, std::string_view option, std::string_view value);

// The request of a model's layers with what is asked in the place of what it says.
Result<AttentionRequest> with_asked(const BackendsAsk& ask, AttentionRequest of_model);

}  // namespace attnscope
