// What models that are trained have in common: rotations, what a token sees, the best of scores.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace attnscope::reference {

// Numbers of a rotary embedding with YaRN, whose factor 1 changes nothing.
struct TrainRotary {
  std::int64_t dim = 0;
  double theta = 0, factor = 1, original_max = 0, beta_fast = 32, beta_slow = 1;
};
// [dim / 2] what a pair turns by from one position to the next; every step in fp32, as served
// models have their tables.
std::vector<double> turns_of(const TrainRotary& rotary);

// cos and sin of positions 0, stride, 2 * stride, .., [count, pairs], from angles in fp32. Made by
// the host, so that every device has the same.
struct Turned {
  at::Tensor cos, sin;
  Turned back() const { return {cos, -sin}; }
  Turned of(std::int64_t begin, std::int64_t end) const {
    return {cos.slice(0, begin, end), sin.slice(0, begin, end)};
  }
};
Turned turned(const std::vector<double>& turns, std::int64_t count, std::int64_t stride,
              const at::TensorOptions& options);

// x [B, T, heads, dim]: dims 2i and 2i + 1 turned together; or dims i and i + dim / 2.
at::Tensor turn_neighbours(const at::Tensor& x, const Turned& t);
at::Tensor turn_halves(const at::Tensor& x, const Turned& t);

// Entries of so many tokens each: of tokens [begin, end), those up to the last of them, true where
// an entry is not complete yet for the one that looks. [end - begin, end / entry]
at::Tensor unfinished(std::int64_t begin, std::int64_t end, std::int64_t entry, at::Device device);

// scores [B, n, end / entry] of tokens from `begin` on: true for the k best of the entries that
// each token sees, of equal ones the earlier. Chosen by the host, whatever computed them.
at::Tensor best_of(const at::Tensor& scores, std::int64_t begin, std::int64_t entry,
                   std::int64_t k);

// The sum over heads of w relu(q . k): query [B, n, J, D], keys [B, D, entries], weights [B, n, J].
at::Tensor indexer_scores(const at::Tensor& query, const at::Tensor& keys,
                          const at::Tensor& weights);

}  // namespace attnscope::reference
