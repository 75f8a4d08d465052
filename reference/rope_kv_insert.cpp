// Norm and rotary embedding of queries and keys; keys and values into their caches.
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "reference/kv_rows.h"
#include "reference/ops.h"
#include "reference/tensors.h"

namespace attnscope::reference {

namespace {

using Vector = std::vector<double>;

// cos and sin of every pair that is turned, at a position.
struct Angles {
  Vector cos, sin;
};

class RotaryTable {
 public:
  RotaryTable(const as_rope& rope, std::int64_t size, bool exact)
      : base_(rope.base), size_(size), exact_(exact) {
    if (present(rope.table)) {
      table_.emplace(rope.table, "rope.table", Shape{kAny, kAny});
      if (table_->cols() % 2 != 0 || table_->cols() > size) {
        throw BadInput("rope.table has rows of " + std::to_string(table_->cols()) +
                       " values; allowed: even numbers up to " + std::to_string(size));
      }
    } else if (rope.factor > 1) {
      throw BadInput("rope.factor is above 1 (YaRN); give rope.table");
    }
  }

  bool turns() const { return table_ || base_ > 0; }

  Angles at(std::int64_t position) const {
    Angles a;
    if (table_) {
      check_index(position, table_->rows(), "row of rope.table", position);
      const auto half = static_cast<std::size_t>(table_->cols() / 2);
      Vector row(2 * half);
      table_->load(position, row.data());
      a.cos.assign(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(half));
      a.sin.assign(row.begin() + static_cast<std::ptrdiff_t>(half), row.end());
      return a;
    }
    for (std::int64_t i = 0; i < size_ / 2; ++i) {
      const double frequency = std::pow(base_, -2.0 * static_cast<double>(i) / size());
      double angle = static_cast<double>(position) * frequency;
      if (!exact_) {  // the fp32 table of the contract
        angle = round_to_fp32(static_cast<double>(position) * round_to_fp32(frequency));
      }
      a.cos.push_back(exact_ ? std::cos(angle) : round_to_fp32(std::cos(angle)));
      a.sin.push_back(exact_ ? std::sin(angle) : round_to_fp32(std::sin(angle)));
    }
    return a;
  }

 private:
  double size() const { return static_cast<double>(size_); }

  std::optional<FloatRows> table_;
  double base_;
  std::int64_t size_;
  bool exact_;
};

// x / sqrt(mean(x^2) + eps) * w
void rms_norm_head(Vector& x, const Vector& weight, double plus, double eps) {
  double squares = 0;
  for (double v : x) squares += v * v;
  const double root = std::sqrt(squares / static_cast<double>(x.size()) + eps);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = x[i] / root * (plus + weight[i]);
}

// The pair (a, b) as a complex number times e^(i angle).
void rotate_pairs(Vector& x, const Angles& angles, bool halves) {
  const std::size_t n = angles.cos.size();
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t a = halves ? i : 2 * i, b = halves ? i + n : 2 * i + 1;
    const double re = x[a] * angles.cos[i] - x[b] * angles.sin[i];
    const double im = x[a] * angles.sin[i] + x[b] * angles.cos[i];
    x[a] = re;
    x[b] = im;
  }
}

// One of q and k: x [T,heads,D], normalised, rotated, rounded.
class Heads {
 public:
  Heads(const as_rope_kv_insert_params& p, const as_tensor& x, const char* name,
        const as_tensor& weight, const char* weight_name, const Precision& precision)
      : p_(p),
        precision_(precision),
        x_(x, name, {kAny, kAny, kAny}),
        positions_(p.positions),
        rope_(p.rope, x.shape[2], precision.exact) {
    if (present(weight)) weight_ = FloatRows(weight, weight_name, {x_.size(2)}).load_all();
  }

  std::int64_t heads() const { return x_.size(1); }

  Vector make(std::int64_t token, std::int64_t head) const {
    Vector x(static_cast<std::size_t>(x_.size(2)));
    x_.load(token * heads() + head, x.data());
    if (!weight_.empty()) rms_norm_head(x, weight_, p_.weight_plus_one, p_.eps);
    if (rope_.turns()) {
      const Integers positions(positions_, "positions", {x_.size(0)});
      rotate_pairs(x, rope_.at(positions.get(token)), p_.style == AS_ROPE_NEOX);
    }
    precision_.bf16(x.data(), x_.size(2));
    return x;
  }

 private:
  const as_rope_kv_insert_params& p_;
  Precision precision_;
  FloatRows x_;
  as_tensor positions_;
  RotaryTable rope_;
  Vector weight_;
};

}  // namespace

void rope_kv_insert(const as_rope_kv_insert_params& p, const Precision& precision) {
  const bool given = p.rows_given != 0;
  check_rule("style", p.style, AS_ROPE_GPTJ);
  check_rule("weight_plus_one", p.weight_plus_one, 1);
  const FloatRows k(given ? p.k_row : p.k, given ? "k_row" : "k", {kAny, kAny, kAny});
  const std::int64_t tokens = k.size(0), kv_heads = k.size(1), size = k.size(2);
  const FloatRows v(p.v, "v", {tokens, kv_heads, kAny});
  const Integers slots(p.slots, "slots", {tokens});
  const KvRows k_cache(p.k_cache, "k_cache", kv_heads, size);
  const KvRows v_cache(p.v_cache, "v_cache", kv_heads, v.size(2));

  if (!given && present(p.q)) {
    const Heads queries(p, p.q, "q", p.q_weight, "q_weight", precision);
    const FloatRows q_out(p.q_out, "q_out", {tokens, queries.heads(), size});
    for (std::int64_t i = 0; i < tokens * queries.heads(); ++i) {
      q_out.store(i, queries.make(i / queries.heads(), i % queries.heads()).data());
    }
  }
  std::optional<Heads> keys;
  std::optional<FloatRows> k_row;
  if (!given) keys.emplace(p, p.k, "k", p.k_weight, "k_weight", precision);
  if (!given && present(p.k_row)) k_row.emplace(p.k_row, "k_row", Shape{tokens, kv_heads, size});
  // One after the other: of two rows for one slot the later one stays.
  for (std::int64_t t = 0; t < tokens; ++t) {
    Vector key_row, value_row;
    for (std::int64_t g = 0; g < kv_heads; ++g) {
      Vector key(static_cast<std::size_t>(size)), value(static_cast<std::size_t>(v.size(2)));
      if (given) {
        k.load(t * kv_heads + g, key.data());
      } else {
        key = keys->make(t, g);
      }
      if (k_row) k_row->store(t * kv_heads + g, key.data());
      v.load(t * kv_heads + g, value.data());
      key_row.insert(key_row.end(), key.begin(), key.end());
      value_row.insert(value_row.end(), value.begin(), value.end());
    }
    if (slots.get(t) < 0) continue;
    k_cache.store(slots.get(t), t, key_row, precision);
    v_cache.store(slots.get(t), t, value_row, precision);
  }
}

}  // namespace attnscope::reference
