// Taps by name: "sparse_attention.o", "indexer_topk" for all outputs of the op, "all".
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/params/op_table.h"
#include "kernels/params/result.h"

namespace attnscope {

class TapChoice {
 public:
  // reference: ops before the layers and sample are refused, as free-running references have none;
  // "all" leaves them out then. Unknown names are AS_USAGE with the ones that are close.
  static Result<TapChoice> parse(const std::vector<std::string>& names, bool reference);

  bool wants(as_op_id op, const as_tap_info& tap) const;

  // The names, other than "all", of which no tap is among those that were there.
  std::vector<std::string> absent(
      const std::function<bool(as_op_id, const as_tap_info&)>& there) const;

 private:
  struct Wish {
    as_op_id op;
    const as_tap_info* tap;
    std::string name;  // as it was given
  };
  std::vector<Wish> wishes_;
};

}  // namespace attnscope
