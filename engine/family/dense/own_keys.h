// Keys of config.json that this program alone knows and that dense models of all kinds may have.
#pragma once

#include "engine/io/json_object.h"
#include "engine/model/model_config.h"
#include "kernels/params/paged_params.h"

namespace attnscope {

// After what rows hold is known.
inline void read_own_keys(JsonObject& root, DenseAttention& d) {
  if (root.choice("attnscope_cache_layout", {"NHD", "HND"}, "NHD") == "HND") {
    d.cache_record |= AS_RECORD_HND;
  }
  d.mask = root.text("attnscope_mask", "");
  d.score = root.text("attnscope_score", "");
}

}  // namespace attnscope
