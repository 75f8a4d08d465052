// Which op feeds which, held against the published formulas. The engine and the free-running
// references take their inputs by the same wiring (engine/family/op_graph.h), so that a wrong
// wire would be on both sides. Here every layer is computed once more from its input to its output,
// dense and in float64, by formulas of this file alone: no ops, no pages, no step.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "engine/session/place.h"
#include "tests/blame/tiny_session.h"

namespace attnscope {
namespace wiring_test {

using Rows = std::vector<std::vector<double>>;  // [tokens][values]

constexpr int kDim = 512, kRope = 64;

double value(bf16_t v) {
  return static_cast<double>(std::bit_cast<float>(std::uint32_t{v.bits} << 16));
}

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

// x W^T with rows [first, first + n) of W, stored [out, in].
Rows times(const Rows& x, const Buffer<bf16_t>& weight, std::int64_t first, std::int64_t n) {
  Rows y(x.size(), std::vector<double>(size(n)));
  const std::size_t in = x[0].size();
  for (std::size_t o = 0; o < size(n); ++o) {
    std::vector<double> row(in);
    for (std::size_t i = 0; i < in; ++i) row[i] = value(weight.data()[(size(first) + o) * in + i]);
    for (std::size_t t = 0; t < x.size(); ++t) {
      y[t][o] = std::inner_product(row.begin(), row.end(), x[t].begin(), 0.0);
    }
  }
  return y;
}

void normalise(double* v, std::int64_t n, const bf16_t* weight, double eps) {
  double squares = 0;
  for (std::int64_t i = 0; i < n; ++i) squares += v[i] * v[i];
  const double factor = 1 / std::sqrt(squares / static_cast<double>(n) + eps);
  for (std::int64_t i = 0; i < n; ++i) v[i] *= factor * (weight ? value(weight[i]) : 1);
}

class Layer {
 public:
  Layer(const ModelConfig& config, const WeightList& weights, int ratio, int topk)
      : c_(config), w_(weights), ratio_(ratio), topk_(topk) {
    const double base = ratio > 0 ? c_.compress_rope_theta : c_.rope_theta;
    const auto boundary = [&](double turns) {
      return kRope * std::log(c_.yarn_original_max / (2 * M_PI * turns)) / (2 * std::log(base));
    };
    const double low = std::max(0.0, std::floor(boundary(c_.yarn_beta_fast)));
    const double high = std::min(kRope - 1.0, std::ceil(boundary(c_.yarn_beta_slow)));
    for (int i = 0; i < kRope / 2; ++i) {
      double f = std::pow(base, -2.0 * i / kRope);
      if (ratio > 0) {
        const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
        f = f / c_.yarn_factor * ramp + f * (1 - ramp);
      }
      frequencies_.push_back(f);
    }
  }

  Rows run(const Rows& h) const {
    Rows x = h;
    for (auto& row : x) normalise(row.data(), c_.hidden, w_["attn_norm"].bf16.data(), c_.rms_eps);
    Rows qr = times(x, w_["wq_kv_a"].bf16, 0, c_.q_lora),
         kv = times(x, w_["wq_kv_a"].bf16, c_.q_lora, kDim);
    for (auto& row : qr) normalise(row.data(), c_.q_lora, w_["q_norm"].bf16.data(), c_.rms_eps);
    for (auto& row : kv) normalise(row.data(), kDim, w_["kv_norm"].bf16.data(), c_.rms_eps);
    Rows q = times(qr, w_["wq_b"].bf16, 0, std::int64_t{c_.heads} * kDim);
    for (std::size_t t = 0; t < x.size(); ++t) {
      turn(kv[t].data(), kDim, static_cast<double>(t));
      for (int head = 0; head < c_.heads; ++head) {
        double* v = q[t].data() + head * kDim;
        normalise(v, kDim, nullptr, c_.rms_eps);
        turn(v, kDim, static_cast<double>(t));
      }
    }
    const Rows entries = ratio_ > 0 ? compress(x, "compressor.", kDim) : Rows{};
    const auto chosen = choose(x, qr);
    Rows o(x.size());
    for (std::size_t t = 0; t < x.size(); ++t) {
      std::vector<const double*> read;
      for (std::size_t p = t + 1 > size(c_.window) ? t + 1 - size(c_.window) : 0; p <= t; ++p) {
        read.push_back(kv[p].data());
      }
      for (const std::size_t entry : chosen[t]) read.push_back(entries[entry].data());
      o[t] = attend(q[t], read);
      for (int head = 0; head < c_.heads; ++head) {
        turn(o[t].data() + head * kDim, kDim, -static_cast<double>(t));
      }
    }
    Rows y = project(o);
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t i = 0; i < y[t].size(); ++i) y[t][i] += h[t][i];
    }
    return y;
  }

 private:
  // The last 64 of n values, in pairs of neighbours.
  void turn(double* v, int n, double position) const {
    for (int i = 0; i < kRope / 2; ++i) {
      double *even = v + n - kRope + 2 * i, *odd = even + 1;
      const double angle = position * frequencies_[size(i)];
      const double e = *even * std::cos(angle) - *odd * std::sin(angle);
      *odd = *even * std::sin(angle) + *odd * std::cos(angle);
      *even = e;
    }
  }

  Rows compress(const Rows& x, const std::string& path, int dim) const {
    const int width = (ratio_ == 4 ? 2 : 1) * dim;
    const Buffer<bf16_t>& kv_gate = w_[path + "kv_gate"].bf16;
    const Rows values = times(x, kv_gate, 0, width);
    Rows scores = times(x, kv_gate, width, width);
    for (std::size_t t = 0; t < x.size(); ++t) {
      const float* ape = w_[path + "ape"].f32.data() + t % size(ratio_) * size(width);
      for (int k = 0; k < width; ++k) scores[t][size(k)] += static_cast<double>(ape[k]);
    }
    Rows entries;
    for (std::size_t first = 0; first + size(ratio_) <= x.size(); first += size(ratio_)) {
      std::vector<double> entry(size(dim));
      for (std::size_t k = 0; k < size(dim); ++k) {
        double sum = 0, weights = 0;
        const auto pool = [&](std::size_t t, std::size_t channel) {
          const double e = std::exp(scores[t][channel]);
          sum += e * values[t][channel];
          weights += e;
        };
        if (ratio_ == 4 && first > 0) {
          for (std::size_t t = first - 4; t < first; ++t) pool(t, k);
        }
        for (std::size_t t = first; t < first + size(ratio_); ++t) {
          pool(t, ratio_ == 4 ? size(dim) + k : k);
        }
        entry[k] = sum / weights;
      }
      normalise(entry.data(), dim, w_[path + "norm"].bf16.data(), c_.rms_eps);
      turn(entry.data(), dim, static_cast<double>(first));
      entries.push_back(std::move(entry));
    }
    return entries;
  }

  // Entries that each token attends to.
  std::vector<std::vector<std::size_t>> choose(const Rows& x, const Rows& qr) const {
    std::vector<std::vector<std::size_t>> chosen(x.size());
    if (ratio_ == 0) return chosen;
    for (std::size_t t = 0; t < x.size(); ++t) {
      chosen[t].resize((t + 1) / size(ratio_));
      std::iota(chosen[t].begin(), chosen[t].end(), 0u);
    }
    if (ratio_ != 4) return chosen;
    const int dim = c_.index_dim;
    const Rows keys = compress(x, "indexer.", dim);
    Rows q = times(qr, w_["indexer.wq_b"].bf16, 0, std::int64_t{c_.index_heads} * dim);
    const Rows weights = times(x, w_["indexer.weights_proj"].bf16, 0, c_.index_heads);
    for (std::size_t t = 0; t < x.size(); ++t) {
      if (chosen[t].size() <= size(topk_)) continue;
      std::vector<double> scores(chosen[t].size());
      for (int head = 0; head < c_.index_heads; ++head) {
        double* v = q[t].data() + head * dim;
        turn(v, dim, static_cast<double>(t));
        const double weight = weights[t][size(head)] / std::sqrt(dim) / std::sqrt(c_.index_heads);
        for (std::size_t e = 0; e < scores.size(); ++e) {
          scores[e] += weight * std::max(0.0, std::inner_product(v, v + dim, keys[e].begin(), 0.0));
        }
      }
      std::ranges::sort(chosen[t], [&](auto a, auto b) { return scores[a] > scores[b]; });
      chosen[t].resize(size(topk_));
    }
    return chosen;
  }

  std::vector<double> attend(const std::vector<double>& q,
                             const std::vector<const double*>& read) const {
    std::vector<double> out(q.size());
    for (int head = 0; head < c_.heads; ++head) {
      const double* v = q.data() + head * kDim;
      double all = std::exp(static_cast<double>(w_["sinks"].f32.data()[head]));
      double* to = out.data() + head * kDim;
      for (const double* row : read) {
        const double e = std::exp(std::inner_product(v, v + kDim, row, 0.0) / std::sqrt(kDim));
        all += e;
        for (int d = 0; d < kDim; ++d) to[d] += e * row[d];
      }
      for (int d = 0; d < kDim; ++d) to[d] /= all;
    }
    return out;
  }

  Rows project(const Rows& o) const {
    Rows z(o.size());
    const std::int64_t in = std::int64_t{c_.heads} / c_.o_groups * kDim;
    for (int group = 0; group < c_.o_groups; ++group) {
      Rows part;
      for (const auto& row : o) {
        part.emplace_back(row.begin() + group * in, row.begin() + (group + 1) * in);
      }
      const Rows out = times(part, w_["wo_a"].bf16, std::int64_t{group} * c_.o_lora, c_.o_lora);
      for (std::size_t t = 0; t < o.size(); ++t) {
        z[t].insert(z[t].end(), out[t].begin(), out[t].end());
      }
    }
    return times(z, w_["wo_b"].bf16, 0, c_.hidden);
  }

  const ModelConfig& c_;
  const WeightList& w_;
  int ratio_, topk_;
  std::vector<double> frequencies_;
};

// What the free-running ref.exact had as every layer's input and output, by request and position.
struct Seen : SessionObserver {
  void op_done(const Session& session) override {
    if (session.last_params().op() != AS_OP_RESIDUAL) return;
    const auto& p = session.verifier().free_params(true)->get<as_residual_params>();
    const StepMetadata& m = session.metadata();
    const auto layer = size(last_place(session).layer);
    for (std::size_t t = 0; t < m.positions.size(); ++t) {
      const auto request = size(m.live[size(m.token_to_req[t])]);
      for (const auto& [rows, tensor] : {std::pair{&inputs, p.h}, std::pair{&outputs, p.out}}) {
        auto& of = (*rows)[layer][request];
        ASSERT_EQ(size(m.positions[t]), of.size());
        const auto* row = at<double>(tensor, static_cast<std::int64_t>(t));
        of.emplace_back(row, row + tensor.shape[1]);
      }
    }
  }
  void step_done(const Session&) override {}
  void went_back(const Session&) override {}

  std::array<std::array<Rows, 2>, 3> inputs, outputs;  // by layer, request
};

double worst(const Rows& a, const Rows& b) {
  double off = 0, largest = 0;
  for (std::size_t t = 0; t < a.size(); ++t) {
    for (std::size_t i = 0; i < a[t].size(); ++i) {
      off = std::max(off, std::fabs(a[t][i] - b[t][i]));
      largest = std::max(largest, std::fabs(b[t][i]));
    }
  }
  return off / largest;
}

TEST(Wiring, EveryLayerIsTheOneOfTheFormulas) {
  // With frequencies in float64, as the formulas have them.
  auto session = session_of(tiny_scenario(7, 396, "vllm,rope_frequencies=fp64"), References::kBoth);
  Seen seen;
  session->set_observer(&seen);
  while (!session->finished()) ASSERT_TRUE(session->step());
  const SessionParts& parts = session->parts();
  for (int layer = 0; layer < parts.config.num_layers(); ++layer) {
    const int ratio = parts.config.ratio(layer);
    const WeightList& weights = parts.weights->layers[size(layer)];
    for (std::size_t request = 0; request < 2; ++request) {
      SCOPED_TRACE(fmt::format("ratio {}, request {}", ratio, request));
      const Rows& input = seen.inputs[size(layer)][request];
      const Rows& output = seen.outputs[size(layer)][request];
      ASSERT_EQ(input.size(), request == 0 ? 398u : 20u);
      const Layer formulas(parts.config, weights, ratio, parts.config.index_topk);
      const double off = worst(formulas.run(input), output);
      fmt::print("ratio {:<4} {} tokens: {:.2g} of the largest value\n", ratio, input.size(), off);
      // The session's cosines and sines come from a table in fp32.
      EXPECT_LT(off, 1e-5);
      if (ratio != 4 || request != 0) continue;
      // It has something to tell apart: with every entry selected the layer is another one.
      EXPECT_GT(worst(Layer(parts.config, weights, ratio, 1 << 20).run(input), output), 1e-4);
    }
  }
}

}  // namespace wiring_test
}  // namespace attnscope
