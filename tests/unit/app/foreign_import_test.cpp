// Dumps of other engines whose numbers are not ours: rotary tables of their own, wider and narrower
// floats, other sizes, and roundings that a map names.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/opcase/case_file.h"
#include "engine/tensorfile/tensor_writer.h"
#include "engine/trace/compare.h"
#include "kernels/cpu/codec.h"
#include "kernels/cpu/rope_table.h"
#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"
#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace foreign_import_test {

using Bits = std::vector<std::uint16_t>;

float noise(std::size_t i) { return std::sin(0.7f * static_cast<float>(i * i % 1013)); }

std::uint16_t f16_bits(float value) {  // of normal values that it holds exactly
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto exponent = static_cast<int>(bits >> 23 & 255) - 127 + 15;
  return static_cast<std::uint16_t>((bits >> 16 & 0x8000) | static_cast<unsigned>(exponent) << 10 |
                                    (bits >> 13 & 1023));
}

class ForeignImport : public CliTest {
 protected:
  Outcome import(const std::string& op, const std::string& body, const std::string& name = "x") {
    const std::string map =
        write("map.json",
              R"({"format": "attnscope-import-map", "version": 1, "engine": "other", "ops": {")" +
                  op + "\": {" + body + "}}}");
    return run({"case", "import", map, path("dump.safetensors"), "--op", op, "--force", "-o",
                path(name + ".json")});
  }
  int judged(const std::string& name = "x", const std::string& lane = "ref.sim") {
    return run({"case", "run", path(name + ".json"), "--lane", lane}).code;
  }
  static void expect(const Outcome& out, int code, const std::vector<std::string>& parts) {
    EXPECT_EQ(out.code, code) << out.out << out.err;
    for (const std::string& part : parts) {
      EXPECT_NE((out.out + out.err).find(part), std::string::npos)
          << part << " missing: " << out.out << out.err;
    }
  }
};

// What another engine does: rotates back with its own table, in fp32, and rounds once.
struct Rotated {
  static constexpr std::int64_t kTokens = 4, kHeads = 32;
  std::vector<std::int64_t> positions = {17, 4000, 8191, 8999};
  Bits o = Bits(kTokens * kHeads * 512), out = o;
  std::vector<double> table;  // [9000,64]

  explicit Rotated(std::int32_t frequencies, bool in_bf16 = false) : table(9000 * 64) {
    as_rope rope{};
    rope.base = 160000;
    rope.factor = 16;
    rope.original_max_pos = 65536;
    rope.beta_fast = 32;
    rope.beta_slow = 1;
    rope.table.reserved = frequencies;
    std::vector<float> rows(table.size());
    cpu::build_rope_table(rope, 9000, rows.data(), nullptr);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      table[i] = static_cast<double>(in_bf16 ? cpu::round_bf16(rows[i]) : rows[i]);
    }
    for (std::size_t i = 0; i < o.size(); ++i) out[i] = o[i] = cpu::float_to_bf16(noise(i));
    for (std::size_t row = 0; row < kTokens * kHeads; ++row) {
      const double* turn = &table[static_cast<std::size_t>(positions[row / kHeads]) * 64];
      for (std::size_t i = 0; i < 32; ++i) {
        const std::size_t at = row * 512 + 448 + 2 * i;
        const double e = cpu::bf16_to_float(o[at]), s = cpu::bf16_to_float(o[at + 1]);
        out[at] = cpu::float_to_bf16(cpu::round_bf16(e * turn[i] + s * turn[32 + i]));
        out[at + 1] = cpu::float_to_bf16(cpu::round_bf16(s * turn[i] - e * turn[32 + i]));
      }
    }
  }
  void add(TensorWriter& writer) const {
    writer.add("o", ElementType::kBf16, {kTokens, kHeads, 512}, o);
    writer.add("out", ElementType::kBf16, {kTokens, kHeads, 512}, out);
    writer.add("positions", ElementType::kI64, {kTokens}, positions);
  }
  static std::string body(const std::string& rope) {
    return R"("tensors": {"o": {"name": "o"}, "out": {"name": "out"},
                          "positions": {"name": "positions"}},
              "ropes": {"rope": {"base": 160000, "factor": 16, "original_max_pos": 65536)" +
           rope + "}}";
  }
};

// Correct outputs, with frequencies in fp32 as served: of the numbers alone they are right at far
// positions too; a table that is given counts for the reference, whatever its numbers would give.
TEST_F(ForeignImport, AReferenceTakesTheTableThatTheDumpBrings) {
  const Rotated fp32(AS_ROPE_FP32), bf16(AS_ROPE_FP64, true);
  TensorWriter writer;
  fp32.add(writer);
  std::vector<float> narrow(fp32.table.begin(), fp32.table.end());
  writer.add("table", ElementType::kF32, {9000, 64}, narrow);
  writer.add("wide", ElementType::kF64, {9000, 64}, fp32.table);
  ASSERT_TRUE(writer.write(path("dump.safetensors")));
  expect(import("inverse_rope", Rotated::body("")), 0, {"with fp32 frequencies"});
  EXPECT_EQ(judged(), 0);
  EXPECT_EQ(judged("x", "cpu"), 0);
  expect(import("inverse_rope", Rotated::body(R"(, "frequencies": "fp64")")), 0,
         {"with fp64 frequencies"});
  EXPECT_EQ(judged(), 1);
  expect(import("inverse_rope", Rotated::body(R"(, "frequencies": "fp64", "table": "table")")), 0,
         {"rope is the dump's, in F32"});
  EXPECT_EQ(judged(), 0);
  EXPECT_EQ(judged("x", "cpu"), 0);
  expect(import("inverse_rope", Rotated::body(R"(, "frequencies": "fp64", "table": "wide")")), 0,
         {"in F64 rounded once to fp32"});
  EXPECT_EQ(judged(), 0);

  // Cosines and sines in bf16, as a model in bf16 keeps them.
  TensorWriter other;
  bf16.add(other);
  Bits bits;
  for (const double value : bf16.table) {
    bits.push_back(cpu::float_to_bf16(static_cast<float>(value)));
  }
  other.add("table", ElementType::kBf16, {9000, 64}, bits);
  ASSERT_TRUE(other.write(path("dump.safetensors")));
  expect(import("inverse_rope", Rotated::body(R"(, "table": "table")")), 0, {"in BF16"});
  EXPECT_EQ(judged(), 0);
  expect(import("inverse_rope", Rotated::body("")), 0, {});
  EXPECT_EQ(judged(), 1);
}

// x * w in bf16: inputs in F64 and F16, the output in fp32 as it was before its rounding.
TEST_F(ForeignImport, OtherFloatsAreRoundedOnceAndSaid) {
  constexpr std::int64_t kIn = 64, kOut = 32, kTokens = 2;
  std::vector<double> x(kTokens * kIn), y(kTokens * kOut);
  Bits weight(kOut * kIn);
  for (std::size_t i = 0; i < x.size(); ++i) {
    // Beside a tie of bf16: by way of fp32 it would fall on the tie, and to the even side.
    x[i] = static_cast<double>(cpu::round_bf16(noise(i) + 2.0f)) + 0x1p-8 + 0x1p-40;
  }
  for (std::size_t i = 0; i < weight.size(); ++i) {
    weight[i] = f16_bits(cpu::round_bf16(noise(i + 7) + 2.5f));
  }
  std::vector<float> wide(y.size());
  for (std::size_t t = 0; t < kTokens; ++t) {
    for (std::size_t o = 0; o < kOut; ++o) {
      double sum = 0;
      for (std::size_t i = 0; i < kIn; ++i) {
        sum += static_cast<double>(cpu::round_bf16(x[t * kIn + i])) *
               static_cast<double>(cpu::round_bf16(noise(o * kIn + i + 7) + 2.5f));
      }
      wide[t * kOut + o] = static_cast<float>(sum);
    }
  }
  TensorWriter writer;
  writer.add("x", ElementType::kF64, {kTokens, kIn}, x);
  writer.add("weight", ElementType::kF16, {kOut, kIn}, weight);
  writer.add("y", ElementType::kF32, {kTokens, kOut}, wide);
  ASSERT_TRUE(writer.write(path("dump.safetensors")));
  const std::string body = R"("tensors": {"x": {"name": "x"}, "weight": {"name": "weight"},
                                          "y": {"name": "y"}})";
  const Outcome out = import("wo_b", body);
  expect(out, 0,
         {"x: F64 is rounded to bf16, once: 128 of 128 values change",
          "y: F32 is rounded to bf16, once"});
  EXPECT_EQ(out.out.find("weight: F16"), std::string::npos) << out.out;  // nothing changes
  EXPECT_EQ(judged(), 0);
  auto kept = read_case(path("x.json"));
  ASSERT_TRUE(kept) << kept.error().text();
  const as_tensor stored = stored_view(kept->tensors.at("x"));
  ASSERT_EQ(stored.dtype, AS_BF16);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto t = static_cast<std::int64_t>(i);
    ASSERT_EQ(element(stored, t / kIn, t % kIn), static_cast<double>(cpu::round_bf16(x[i]))) << i;
  }
  const as_tensor w = stored_view(kept->tensors.at("weight"));
  EXPECT_EQ(element(w, 0, 0), static_cast<double>(cpu::round_bf16(noise(7) + 2.5f)));

  // An output of fp32 for an op that rounds to bf16 is compared within the tolerance of that.
  const Rotated right(AS_ROPE_FP32);
  TensorWriter other;
  right.add(other);
  std::vector<float> unrounded(right.out.size());
  for (std::size_t i = 0; i < unrounded.size(); ++i) {
    unrounded[i] = cpu::bf16_to_float(right.out[i]) * (1 + 0x1p-11f);
  }
  other.add("fp32", ElementType::kF32, {Rotated::kTokens, Rotated::kHeads, 512}, unrounded);
  ASSERT_TRUE(other.write(path("dump.safetensors")));
  std::string fp32 = Rotated::body("");
  fp32.replace(fp32.find(R"("name": "out")"), 13, R"("name": "fp32")");
  expect(import("inverse_rope", fp32), 0, {"out: F32 is rounded to bf16, once"});
  EXPECT_EQ(judged(), 0);
}

// Attention of head dim 128, rows gathered before, in a model whose eager code rounds its logits.
struct Eager {
  static constexpr std::int64_t kHeads = 2, kKeys = 40;
  std::int64_t dim;
  Bits q, rows, o;
  std::vector<float> sinks;
  std::vector<std::int32_t> indices, lens = {kKeys};

  Eager(std::int64_t d, bool rounded_logits, float size)
      : dim(d), sinks(size > 0 ? std::vector<float>{20, 19} : std::vector<float>{0.5f, -1}) {
    const auto n = static_cast<std::size_t>(d);
    // A part that all keys share makes logits large, and leaves their differences small.
    for (std::size_t i = 0; i < kHeads * n; ++i) {
      q.push_back(cpu::float_to_bf16(noise(i) + (i % n < 64 ? size : 0.0f)));
    }
    for (std::size_t i = 0; i < kKeys * n; ++i) {
      rows.push_back(cpu::float_to_bf16(noise(3 * i + 11) + (i % n < 64 ? size / 2 : 0.0f)));
    }
    for (std::int32_t k = 0; k < kKeys; ++k) indices.push_back(k);
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    for (std::size_t h = 0; h < kHeads; ++h) {
      std::vector<double> weights(kKeys);
      double total = std::exp(static_cast<double>(sinks[h]));
      for (std::size_t k = 0; k < kKeys; ++k) {
        double dot = 0;
        for (std::size_t i = 0; i < n; ++i) dot += value(q[h * n + i]) * value(rows[k * n + i]);
        dot *= scale;
        weights[k] = std::exp(rounded_logits ? static_cast<double>(cpu::round_bf16(dot)) : dot);
        total += weights[k];
      }
      for (std::size_t i = 0; i < n; ++i) {
        double sum = 0;
        for (std::size_t k = 0; k < kKeys; ++k) sum += weights[k] * value(rows[k * n + i]);
        o.push_back(cpu::float_to_bf16(cpu::round_bf16(sum / total)));
      }
    }
  }
  static double value(std::uint16_t bits) { return static_cast<double>(cpu::bf16_to_float(bits)); }
  void write(const std::string& file, bool narrow_sinks = false) const {
    TensorWriter writer;
    writer.add("q", ElementType::kBf16, {1, kHeads, dim}, q);
    writer.add("rows", ElementType::kBf16, {kKeys, dim}, rows);
    writer.add("o", ElementType::kBf16, {1, kHeads, dim}, o);
    Bits narrow;
    for (const float s : sinks) narrow.push_back(cpu::float_to_bf16(s));
    if (narrow_sinks) {
      writer.add("sinks", ElementType::kBf16, {kHeads}, narrow);
    } else {
      writer.add("sinks", ElementType::kF32, {kHeads}, sinks);
    }
    writer.add("indices", ElementType::kI32, {1, kKeys}, indices);
    writer.add("lens", ElementType::kI32, {1}, lens);
    ASSERT_TRUE(writer.write(file));
  }
  std::string body(const std::string& q_more = "", const std::string& rows_more = "",
                   const std::string& o_more = "") const {
    return R"("tensors": {"q": {"name": "q")" + q_more + R"(}, "rows": {"name": "rows")" +
           rows_more + R"(}, "o": {"name": "o")" + o_more +
           R"(}, "sinks": {"name": "sinks"}, "indices": {"name": "indices"},
              "topk_length": {"name": "lens"}}, "numbers": {"scale": )" +
           fmt::format("{}", 1 / std::sqrt(static_cast<double>(dim))) + "}";
  }
};

TEST_F(ForeignImport, SizesAreRefusedTogetherAndPaddedOnlyWhenAsked) {
  const Eager eager(128, false, 0.0f);
  eager.write(path("dump.safetensors"));
  std::string wrong = eager.body();
  const std::string sinks = R"("sinks": {"name": "sinks"})";
  wrong.replace(wrong.find(sinks), sinks.size(), R"("sinks": {"name": "sinks", "shape": [1]})");
  expect(import("workspace_attention", wrong), 3,
         {"D of q is 128, the op takes 512", "D of rows is 128, the op takes 512",
          "H of sinks is 1, of q 2", "\"pad\""});
  expect(
      import("workspace_attention", eager.body(R"(, "pad": [1, 2, 512])", R"(, "pad": [40, 512])",
                                               R"(, "pad": [1, 2, 512])")),
      0, {});
  EXPECT_EQ(judged(), 0);
  EXPECT_EQ(judged("x", "cpu"), 0);
  expect(import("workspace_attention", eager.body(R"(, "pad": [1, 512])", R"(, "pad": [40, 512])")),
         3, {"pad of q", "2 numbers for 3 axes"});
  expect(
      import("workspace_attention", eager.body(R"(, "pad": [1, 2, 100])", R"(, "pad": [40, 512])")),
      3, {"100 is below the 128"});
  eager.write(path("dump.safetensors"), true);
  expect(
      import("workspace_attention", eager.body(R"(, "pad": [1, 2, 512])", R"(, "pad": [40, 512])",
                                               R"(, "pad": [1, 2, 512])")),
      0, {"warning: sinks are stored as bf16"});
}

TEST_F(ForeignImport, AMapNamesAKnownRounding) {
  const Eager eager(512, true, 3.75f);
  eager.write(path("dump.safetensors"));
  expect(import("workspace_attention", eager.body()), 0, {});
  EXPECT_EQ(judged(), 1);
  expect(import("workspace_attention", eager.body("", "", R"(, "class": "attention_bf16_logits")")),
         0, {"o is held against class attention_bf16_logits: for imports"});
  EXPECT_EQ(judged(), 0);
  expect(run({"case", "run", path("x.json"), "--lane", "ref.sim"}), 0, {"attention_bf16_logits"});
  EXPECT_EQ(run({"case", "export", path("x.json"), "--python"}).code, 0);
  EXPECT_NE(read(path("x.py")).find("attention_bf16_logits"), std::string::npos);
  // Looser is not blind: the wrong sink is found.
  Eager other = eager;
  other.sinks = {24, 24};
  other.write(path("dump.safetensors"));
  expect(import("workspace_attention", eager.body("", "", R"(, "class": "attention_bf16_logits")")),
         0, {});
  EXPECT_EQ(judged(), 1);
  expect(import("workspace_attention", eager.body("", "", R"(, "class": "loose")")), 3,
         {"\"loose\"", "attention_bf16_logits"});
}

}  // namespace foreign_import_test
}  // namespace attnscope
