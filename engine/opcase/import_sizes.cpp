#include "engine/opcase/import_sizes.h"

#include <fmt/format.h>

#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "engine/opcase/deepseek_v4/sizes.h"
#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

constexpr std::int64_t kAnySize = std::int64_t{1} << 40;

constexpr AllowedSize kAllowed[] = {
    {AS_OP_Q_ROPE_KV_INSERT, "D", AS_HEAD_DIM, AS_HEAD_DIM, 1},
    {AS_OP_SPARSE_ATTENTION, "D", AS_HEAD_DIM, AS_HEAD_DIM, 1},
    {AS_OP_INVERSE_ROPE, "D", AS_ROPE_DIM, kAnySize, 1},
    {AS_OP_WORKSPACE_ATTENTION, "D", AS_HEAD_DIM, AS_HEAD_DIM, 1},
    {AS_OP_INVERSE_ROPE_QUANTISE, "D", 128, kAnySize, 128},
    {AS_OP_FP8_LINEAR, "in", 128, kAnySize, 128},
};

// Numbers of rows, columns and blocks differ from tensor to tensor.
bool is_one_size(std::string_view letter) {
  constexpr std::string_view kOne[] = {"T",  "H",   "D",      "J",      "K", "W", "hidden",
                                       "in", "out", "q_lora", "groups", "d", "V", "width"};
  for (const std::string_view one : kOne) {
    if (letter == one) return true;
  }
  return false;
}

std::vector<std::string_view> letters_of(std::string_view axes) {
  std::vector<std::string_view> out;
  while (true) {
    const std::size_t comma = axes.find(',');
    out.push_back(axes.substr(0, comma));
    if (comma == std::string_view::npos) return out;
    axes.remove_prefix(comma + 1);
  }
}

std::string allowed_sizes(const AllowedSize& a) {
  if (a.least == a.most) return fmt::format("{}", a.least);
  if (a.step > 1) return fmt::format("a multiple of {}", a.step);
  return a.most == kAnySize ? fmt::format("{} or more", a.least)
                            : fmt::format("{} to {}", a.least, a.most);
}

}  // namespace

std::vector<std::string> size_violations(const CaseOp& op, const void* params) {
  const std::span<const AllowedSize> all[] = {kAllowed, deepseek_v4_sizes()};
  std::vector<std::string> out;
  std::map<std::string_view, std::pair<std::int64_t, const char*>> sizes;  // and whose it is
  for (const as_tap_info& tap : op.taps) {
    const as_tensor& t = tensor_at(params, tap.offset);
    if (tap.kind != AS_TAP_TENSOR || !present(t)) continue;
    const auto letters = letters_of(tap.axes);
    if (letters.size() != static_cast<std::size_t>(t.rank)) {
      out.push_back(fmt::format("{} has {} axes, expected [{}]", tap.name, t.rank, tap.axes));
      continue;
    }
    for (std::size_t a = 0; a < letters.size(); ++a) {
      const std::string_view letter = letters[a];
      if (!is_one_size(letter)) continue;
      const auto [at, first] = sizes.try_emplace(letter, t.shape[a], tap.name);
      const std::int64_t size = t.shape[a];
      if (!first && at->second.first != size) {
        out.push_back(letter == "T" ? fmt::format("{} has {} tokens, {} has {}", tap.name, size,
                                                  at->second.second, at->second.first)
                                    : fmt::format("{} of {} is {}, of {} {}", letter, tap.name,
                                                  size, at->second.second, at->second.first));
      }
      for (const std::span<const AllowedSize> some : all) {
        for (const AllowedSize& allowed : some) {
          const bool fits =
              size >= allowed.least && size <= allowed.most && size % allowed.step == 0;
          if (allowed.op != op.id || letter != allowed.letter || fits) continue;
          out.push_back(fmt::format("{} of {} is {}, the op takes {}", letter, tap.name, size,
                                    allowed_sizes(allowed)));
        }
      }
    }
  }
  return out;
}

}  // namespace attnscope
