// Attention of tokens over lists of rows, which sparse and dense attention share.
#pragma once

#include <functional>
#include <optional>

#include "reference/torch/numbers.h"
#include "reference/torch/tensors.h"

namespace attnscope::reference {

struct Attention {
  Tensor q;  // [T,H,D]
  double scale;
  double soft_cap;  // 0 = none
  Tensor sinks;     // [H]; -inf = none
  // The rows that tokens first .. first + n - 1 see: [n,K] on the host, negative = none.
  std::function<Tensor(std::int64_t first, std::int64_t n)> list;
  std::int64_t rows;  // that there are
  // Keys and values [U,G,D] of rows [U]: those of G heads, each for H/G neighbouring query heads.
  std::function<std::pair<Tensor, Tensor>(const Tensor& rows)> load;
  double empty_lse;  // of a token that sees nothing
  as_tensor o, lse;  // out [T,H,V], [T,H]
  // What is added to scores behind scale and cap, of tokens first .. first + n - 1 and rows [U]:
  // [n,H,U]. Empty: nothing.
  std::function<Tensor(const Tensor& rows, std::int64_t first, std::int64_t n)> bias = {};
  // What scores [n,H,U] behind all of this become, -inf for rows that a head does not see. Empty:
  // what they are.
  std::function<Tensor(const Tensor& scores, const Tensor& rows, std::int64_t first,
                       std::int64_t n)>
      shown = {};
};

void attend(const Attention& a, const Numbers& numbers);

// The valid entries of the lists [T,K] of rows of a cache, -1 elsewhere.
Tensor valid_rows(std::int64_t rows, const as_tensor& indices, const as_tensor& lens,
                  std::int64_t tokens, const char* indices_name, const char* lens_name);

}  // namespace attnscope::reference
