// Synthetic weights: the same bytes for any number of threads, and scales as documented.
#include "engine/family/model_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <thread>

#include "engine/family/deepseek_v4/deepseek_v4.h"
#include "engine/family/deepseek_v4/weight_scales.h"
#include "engine/family/models.h"
#include "engine/model/synthetic_fill.h"
#include "engine/model/weights.h"

namespace attnscope {
namespace model_weights_test {

float to_float(bf16_t x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }
float to_float(float x) { return x; }

struct Moments {
  double mean = 0.0;
  double sigma = 0.0;
  double largest = 0.0;
};

template <class T>
Moments moments(const T* data, std::int64_t n) {
  Moments m;
  double squares = 0.0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = to_float(data[i]);
    m.mean += x;
    squares += x * x;
    m.largest = std::max(m.largest, std::abs(x));
  }
  m.mean /= static_cast<double>(n);
  m.sigma = std::sqrt(squares / static_cast<double>(n) - m.mean * m.mean);
  return m;
}

// Splits the work into as many ranges as there are threads, the last range first.
struct Pool {
  explicit Pool(int n) : threads{this, n, 0, &Pool::run} {}
  static void run(void* self, std::int64_t count, std::int64_t, as_parallel_body body, void* ctx) {
    const int n = static_cast<Pool*>(self)->threads.num_threads;
    std::vector<std::thread> workers;
    for (int k = n - 1; k >= 0; --k) {
      workers.emplace_back([=] { body(ctx, count * k / n, count * (k + 1) / n); });
    }
    for (std::thread& t : workers) t.join();
  }
  as_threads threads;
};

// Calls visit(name, buffer) for every tensor.
template <class Visit>
void for_each(const Weights& w, Visit visit) {
  const auto visit_all = [&](const WeightList& list) {
    for (const Weight& weight : list) {
      visit(weight.name, weight.bf16);
      visit(weight.name, weight.f32);
    }
  };
  visit_all(w.around);
  for (const WeightList& layer : w.layers) visit_all(layer);
}

std::vector<std::string> bytes(const Weights& w) {
  std::vector<std::string> out;
  for_each(w, [&](const std::string&, const auto& b) {
    out.emplace_back(reinterpret_cast<const char*>(b.data()),
                     static_cast<std::size_t>(b.size()) * sizeof(*b.data()));
  });
  return out;
}

TEST(SyntheticWeights, SameBytesForAnyNumberOfThreads) {
  const ModelConfig c = *preset("tiny");
  const auto expected = bytes(synthetic_weights(c, 5, nullptr));
  for (int n : {1, 2, 3, 7}) {
    Pool pool(n);
    EXPECT_EQ(bytes(synthetic_weights(c, 5, &pool.threads)), expected) << n << " threads";
  }
}

TEST(SyntheticWeights, SeedsAndTensorsDiffer) {
  const ModelConfig c = *preset("tiny");
  const auto one = bytes(synthetic_weights(c, 1, nullptr));
  const auto two = bytes(synthetic_weights(c, 2, nullptr));
  ASSERT_EQ(one.size(), two.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    if (one[i].empty()) continue;
    EXPECT_NE(one[i], two[i]);
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(one[i], one[j]);
  }
}

TEST(SyntheticWeights, ALayerIsTheSameInEverySubset) {
  const Weights all = synthetic_weights(*preset("tiny"), 3, nullptr);
  const Weights some = synthetic_weights(*preset("tiny", {2, 3}), 3, nullptr);
  ASSERT_EQ(some.layers.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto& a = all.layers[i + 2]["wq_b"].bf16;
    const auto& b = some.layers[i]["wq_b"].bf16;
    ASSERT_EQ(a.size(), b.size());
    EXPECT_EQ(std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.size()) * 2), 0);
  }
}

TEST(SyntheticWeights, SinksMayBeShiftedAndNothingElse) {
  ModelConfig c = *preset("tiny", {0, 1});
  const Weights plain = synthetic_weights(c, 3, nullptr);
  c.sink_shift = -1.5;
  const Weights shifted = synthetic_weights(c, 3, nullptr);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto &a = plain.layers[i], &b = shifted.layers[i];
    for (std::int64_t h = 0; h < a["sinks"].f32.size(); ++h) {
      EXPECT_EQ(b["sinks"].f32.data()[h], a["sinks"].f32.data()[h] - 1.5f);
    }
    EXPECT_EQ(std::memcmp(a["wq_b"].bf16.data(), b["wq_b"].bf16.data(),
                          static_cast<std::size_t>(a["wq_b"].bf16.size()) * 2),
              0);
  }
}

TEST(SyntheticWeights, ShapesCountAndAlignment) {
  const ModelConfig c = *preset("tiny");
  const Weights w = synthetic_weights(c, 1, nullptr);
  std::int64_t elements = 0;
  std::int64_t total = 0;
  for_each(w, [&](const std::string& name, const auto& b) {
    elements += b.size();
    total += b.size() * static_cast<std::int64_t>(sizeof(*b.data()));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.data()) % 64, 0u) << name;
  });
  EXPECT_EQ(elements, parameter_count(c));
  EXPECT_EQ(total, w.bytes());
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(w.around["embedding"].bf16.shape(), (Shape{256, 512}));
  EXPECT_EQ(w.layers[0]["wq_kv_a"].bf16.shape(), (Shape{640, 512}));
  EXPECT_EQ(w.layers[0]["wq_b"].bf16.shape(), (Shape{4096, 128}));
  EXPECT_EQ(w.layers[0]["wo_a"].bf16.shape(), (Shape{2, 64, 2048}));
  EXPECT_EQ(w.layers[0]["wo_b"].bf16.shape(), (Shape{512, 128}));
  EXPECT_EQ(w.layers[0]["compressor.kv_gate"].bf16.size(), 0);
  EXPECT_EQ(w.layers[0]["compressor.kv_gate"].bf16.tensor().data, nullptr);
  EXPECT_EQ(w.layers[1]["compressor.kv_gate"].bf16.shape(), (Shape{2048, 512}));
  EXPECT_EQ(w.layers[1]["compressor.ape"].f32.shape(), (Shape{4, 1024}));
  EXPECT_EQ(w.layers[1]["indexer.kv_gate"].bf16.shape(), (Shape{512, 512}));
  EXPECT_EQ(w.layers[1]["indexer.ape"].f32.shape(), (Shape{4, 256}));
  EXPECT_EQ(w.layers[1]["indexer.norm"].bf16.shape(), (Shape{128}));
  EXPECT_EQ(w.layers[1]["indexer.wq_b"].bf16.shape(), (Shape{1024, 128}));
  EXPECT_EQ(w.layers[1]["indexer.weights_proj"].bf16.shape(), (Shape{8, 512}));
  EXPECT_EQ(w.layers[2]["compressor.kv_gate"].bf16.shape(), (Shape{1024, 512}));
  EXPECT_EQ(w.layers[2]["compressor.ape"].f32.shape(), (Shape{128, 512}));
  EXPECT_EQ(w.layers[2]["indexer.wq_b"].bf16.size(), 0);
  const as_tensor t = w.layers[0]["wo_a"].bf16.tensor();
  EXPECT_EQ(t.rank, 3);
  EXPECT_EQ(t.dtype, AS_BF16);
  EXPECT_EQ(t.stride[0], 64 * 2048);
  EXPECT_EQ(t.stride[2], 1);
}

void expect_normal(const Buffer<bf16_t>& b, double mean, double sigma, const char* name) {
  const Moments m = moments(b.data(), b.size());
  const double error = 5.0 / std::sqrt(static_cast<double>(b.size()));  // five standard errors
  EXPECT_NEAR(m.mean, mean, error * sigma + mean * 2e-3) << name;
  EXPECT_NEAR(m.sigma, sigma, sigma * (error + 2e-3)) << name;
}

TEST(SyntheticWeights, ScalesAreAsDocumented) {
  const ModelConfig c = *preset("tiny");
  const Weights w = synthetic_weights(c, 11, nullptr);
  const WeightScales s;
  const auto fan = [](double gain, double n) { return gain / std::sqrt(n); };
  expect_normal(w.around["embedding"].bf16, 0.0, fan(s.embedding_gain, 512), "embedding");
  for (const WeightList& l : w.layers) {
    expect_normal(l["attn_norm"].bf16, 1.0, s.norm_spread, "attn_norm");
    expect_normal(l["wq_kv_a"].bf16, 0.0, fan(1.0, 512), "wq_kv_a");
    expect_normal(l["kv_norm"].bf16, s.latent_gain, s.latent_gain * s.norm_spread, "kv_norm");
    expect_normal(l["wq_b"].bf16, 0.0, fan(1.0, 128), "wq_b");
    expect_normal(l["wo_a"].bf16, 0.0, fan(1.0, 2048), "wo_a");
    expect_normal(l["wo_b"].bf16, 0.0, fan(s.output_gain, 128), "wo_b");
  }
  expect_normal(w.layers[1]["compressor.norm"].bf16, s.latent_gain, s.latent_gain * s.norm_spread,
                "norm");
  expect_normal(w.layers[1]["indexer.norm"].bf16, s.index_gain, s.index_gain * s.norm_spread,
                "index norm");
  // The gates of C128A are steeper than its values.
  const auto& kv_gate = w.layers[2]["compressor.kv_gate"].bf16;
  const std::int64_t half = kv_gate.size() / 2;
  EXPECT_NEAR(moments(kv_gate.data() + half, half).sigma / moments(kv_gate.data(), half).sigma,
              s.gate_gain_c128, 0.02);
  const Moments ape =
      moments(w.layers[2]["compressor.ape"].f32.data(), w.layers[2]["compressor.ape"].f32.size());
  EXPECT_LE(ape.largest, s.ape_spread);
  EXPECT_GT(ape.largest, 0.99 * s.ape_spread);
  EXPECT_NEAR(ape.sigma, s.ape_spread / std::sqrt(3.0), 0.01);
}

TEST(SyntheticWeights, SinksSpreadOverTheHeadsOfEveryLayer) {
  for (const char* name : {"tiny", "v4-flash"}) {
    const ModelConfig c = *preset(name, name[0] == 't' ? std::vector<int>{} : std::vector<int>{2});
    const Weights w = synthetic_weights(c, 1, nullptr);
    for (int i = 0; i < c.num_layers(); ++i) {
      const auto& sinks = w.layers[static_cast<std::size_t>(i)]["sinks"].f32;
      // Over a full window, the top-k of a long request, 16 entries of C128A.
      const double entries = type_of_layer(c, i) == LayerType::kC4A     ? 640.0
                             : type_of_layer(c, i) == LayerType::kC128A ? 144.0
                                                                        : 128.0;
      const WeightScales s;
      const double lse = std::log(entries) + s.lse_share * s.latent_gain * s.latent_gain;
      std::vector<double> mass;
      for (std::int64_t h = 0; h < sinks.size(); ++h) {
        mass.push_back(1.0 / (1.0 + std::exp(lse - static_cast<double>(sinks.data()[h]))));
      }
      EXPECT_FALSE(std::is_sorted(mass.begin(), mass.end())) << "heads are not shuffled";
      std::sort(mass.begin(), mass.end());
      EXPECT_NEAR(mass.front(), 0.01, 0.002);
      EXPECT_NEAR(mass.back(), 0.90, 0.01);
      for (std::size_t h = 1; h < mass.size(); ++h) EXPECT_GT(mass[h], mass[h - 1]);
    }
  }
}

TEST(SyntheticFill, ApproximatelyNormal) {
  constexpr std::int64_t kCount = 1 << 20;
  std::vector<float> x(kCount);
  const std::uint64_t key = tensor_key(1, "x");
  for (std::int64_t i = 0; i < kCount; ++i) {
    x[static_cast<std::size_t>(i)] =
        approx_normal(element_hash(key, static_cast<std::uint64_t>(i)));
  }
  const Moments m = moments(x.data(), kCount);
  EXPECT_NEAR(m.mean, 0.0, 0.005);
  EXPECT_NEAR(m.sigma, 1.0, 0.004);
  EXPECT_LT(m.largest, 3.47);
  double lag = 0.0;  // neighbours are independent
  for (std::int64_t i = 1; i < kCount; ++i) {
    lag += x[static_cast<std::size_t>(i)] * x[static_cast<std::size_t>(i - 1)];
  }
  EXPECT_NEAR(lag / kCount, 0.0, 0.005);
}

// Every element is the formula of its own index, rounded to the nearest bf16 or stored as it is.
TEST(SyntheticFill, EveryElementIsAFunctionOfItsIndex) {
  constexpr std::int64_t kCount = 300001;  // three chunks, the last one short
  Buffer<bf16_t> a({kCount});
  Buffer<float> b({kCount});
  FillQueue queue(9);
  queue.normal(a.data(), kCount, "a", 0.25, 1.0);
  queue.uniform(b.data(), kCount, "b", 0.5);
  Pool pool(2);
  queue.run(&pool.threads);
  const std::uint64_t key_a = tensor_key(9, "a");
  const std::uint64_t key_b = tensor_key(9, "b");
  for (std::int64_t i = 0; i < kCount; ++i) {
    const auto index = static_cast<std::uint64_t>(i);
    const float value = 1.0f + 0.25f * approx_normal(element_hash(key_a, index));
    ASSERT_LE(std::abs(to_float(a.data()[i]) - value), std::abs(value) / 256.0f) << i;
    ASSERT_EQ(b.data()[i], 0.5f * uniform(element_hash(key_b, index))) << i;
  }
}

TEST(Buffer, OwnsZeroedMemoryAndMoves) {
  for (const std::int64_t n : {std::int64_t{3}, std::int64_t{3} << 20}) {  // heap and mapped
    Buffer<float> a({n, 2});
    EXPECT_EQ(a.size(), 2 * n);
    EXPECT_TRUE(std::all_of(a.data(), a.data() + a.size(), [](float x) { return x == 0.0f; }));
    a.data()[2 * n - 1] = 4.0f;
    Buffer<float> b(std::move(a));
    EXPECT_EQ(b.data()[2 * n - 1], 4.0f);
    Buffer<float> c;
    EXPECT_EQ(c.tensor().data, nullptr);
    EXPECT_EQ(c.tensor().rank, 0);
    c = std::move(b);
    EXPECT_EQ(c.tensor().shape[0], n);
    EXPECT_EQ(c.tensor().stride[0], 2);
    EXPECT_EQ(c.tensor().dtype, AS_F32);
  }
}

}  // namespace model_weights_test
}  // namespace attnscope
