#include "engine/opcase/import_model_sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/family/models.h"
#include "engine/io/json_object.h"

namespace attnscope {
namespace {

using nlohmann::json;

struct ModelSize {
  const char* name;
  double (*of)(const ModelConfig&);
};
constexpr ModelSize kModelSizes[] = {
    {"hidden", [](const ModelConfig& m) -> double { return m.hidden; }},
    {"vocabulary", [](const ModelConfig& m) -> double { return m.vocabulary; }},
    {"heads", [](const ModelConfig& m) -> double { return m.heads; }},
    {"kv_heads", [](const ModelConfig& m) -> double { return m.kv_heads; }},
    {"head_dim", [](const ModelConfig& m) -> double { return m.head_dim; }},
    {"rope_dim", [](const ModelConfig& m) -> double { return m.rope_dim; }},
    {"q_lora", [](const ModelConfig& m) -> double { return m.q_lora; }},
    {"o_lora", [](const ModelConfig& m) -> double { return m.o_lora; }},
    {"o_groups", [](const ModelConfig& m) -> double { return m.o_groups; }},
    {"window", [](const ModelConfig& m) -> double { return m.window; }},
    {"index_heads", [](const ModelConfig& m) -> double { return m.index_heads; }},
    {"index_dim", [](const ModelConfig& m) -> double { return m.index_dim; }},
    {"index_topk", [](const ModelConfig& m) -> double { return m.index_topk; }},
    {"rms_eps", [](const ModelConfig& m) { return m.rms_eps; }},
    {"rope_theta", [](const ModelConfig& m) { return m.rope_theta; }},
    {"compress_rope_theta", [](const ModelConfig& m) { return m.compress_rope_theta; }},
    {"yarn_factor", [](const ModelConfig& m) { return m.yarn_factor; }},
    {"yarn_original_max", [](const ModelConfig& m) { return m.yarn_original_max; }},
    {"yarn_beta_fast", [](const ModelConfig& m) { return m.yarn_beta_fast; }},
    {"yarn_beta_slow", [](const ModelConfig& m) { return m.yarn_beta_slow; }},
    // Of the scores of attention.
    {"scale",
     [](const ModelConfig& m) {
       return m.dense.scale != 0 ? m.dense.scale : 1 / std::sqrt(static_cast<double>(m.head_dim));
     }},
};

class SizeFiller {
 public:
  SizeFiller(const std::string& path, const ModelConfig* model) : path_(path), model_(model) {}

  Result<void> tensor(json& t) {
    if (!t.is_object()) return {};
    for (const char* key : {"shape", "stride", "slice", "pad"}) {
      const auto list = t.find(key);
      if (list == t.end() || !list->is_array()) continue;
      for (json& n : *list) {
        if (auto ok = number(n); !ok) return ok;
      }
    }
    return value(t, "offset");
  }

  // Of {"tap": {..}, ..}, whose members are objects of numbers.
  Result<void> members(json& op, const char* key) {
    const auto found = op.find(key);
    if (found == op.end() || !found->is_object()) return {};
    for (json& member : *found) {
      if (std::string_view(key) == "tensors") {
        if (auto ok = tensor(member); !ok) return ok;
      } else if (member.is_object()) {
        for (const char* field : {"rows_per_block", "width", "page_stride", "offset", "base",
                                  "factor", "original_max_pos", "beta_fast", "beta_slow"}) {
          if (auto ok = value(member, field); !ok) return ok;
        }
      } else if (auto ok = number(member); !ok) {
        return ok;
      }
    }
    return {};
  }

  Result<void> op(json& entry) {
    if (!entry.is_object()) return {};
    for (const char* key : {"tensors", "caches", "ropes", "numbers"}) {
      if (auto ok = members(entry, key); !ok) return ok;
    }
    return {};
  }

 private:
  Result<void> value(json& of, const char* key) {
    const auto found = of.find(key);
    return found == of.end() ? Result<void>() : number(*found);
  }

  Result<void> number(json& n) {
    if (!n.is_string()) return {};
    const std::string text = n.get<std::string>();
    double sum = 0;
    std::string_view rest = text;
    while (true) {
      const std::size_t plus = rest.find('+');
      const auto term = product(rest.substr(0, plus), text);
      if (!term) return term.error();
      sum += *term;
      if (plus == std::string_view::npos) break;
      rest.remove_prefix(plus + 1);
    }
    if (!std::isfinite(sum)) {
      return bad_input(fmt::format("{}: {} is no number", path_, shown_name(text)));
    }
    if (sum == std::floor(sum) && std::fabs(sum) < 0x1p53) {
      n = static_cast<std::int64_t>(sum);
    } else {
      n = sum;
    }
    return {};
  }

  Result<double> product(std::string_view term, const std::string& text) {
    double out = 1;
    char by = '*';
    while (true) {
      const std::size_t end = term.find_first_of("*/");
      const auto factor = one(term.substr(0, end), text);
      if (!factor) return factor.error();
      out = by == '*' ? out * *factor : out / *factor;
      if (end == std::string_view::npos) return out;
      by = term[end];
      term.remove_prefix(end + 1);
    }
  }

  Result<double> one(std::string_view word, const std::string& text) {
    while (word.starts_with(' ')) word.remove_prefix(1);
    while (word.ends_with(' ')) word.remove_suffix(1);
    std::int64_t literal = 0;
    const auto read = std::from_chars(word.data(), word.data() + word.size(), literal);
    if (read.ec == std::errc() && read.ptr == word.data() + word.size()) {
      return static_cast<double>(literal);
    }
    std::vector<std::string_view> known;
    for (const ModelSize& size : kModelSizes) {
      known.emplace_back(size.name);
      if (word != size.name) continue;
      if (model_ == nullptr) {
        return bad_input(
            fmt::format("{}: {} is of the model, and none is named", path_, shown_name(text)),
            "name it with --model, or under \"model\" in the map");
      }
      return size.of(*model_);
    }
    return bad_input(fmt::format("{}: {} in {} is no dimension of a model", path_, shown_name(word),
                                 shown_name(text)),
                     fmt::format("dimensions: {}", fmt::join(known, ", ")));
  }

  const std::string& path_;
  const ModelConfig* model_;
};

}  // namespace

Result<void> fill_in_sizes(json& map, const std::string& path, const ModelConfig* model) {
  if (!map.is_object()) return {};
  std::optional<ModelConfig> own;
  if (const auto named = map.find("model"); named != map.end()) {
    if (!named->is_string()) return bad_input(path + ": \"model\" names no preset");
    auto found = preset(named->get<std::string>());
    if (!found) return bad_input(path + ": " + found.error().message, found.error().hint);
    own = std::move(*found);
    map.erase(named);
  }
  SizeFiller filler(path, model != nullptr ? model : own ? &*own : nullptr);
  for (const char* key : {"token_ids", "sample_rows", "token_to_req"}) {
    if (const auto t = map.find(key); t != map.end()) {
      if (auto ok = filler.tensor(*t); !ok) return ok;
    }
  }
  const auto ops = map.find("ops");
  if (ops == map.end() || !ops->is_object()) return {};
  for (json& op : *ops) {
    if (!op.is_array()) {
      if (auto ok = filler.op(op); !ok) return ok;
      continue;
    }
    for (json& entry : op) {
      if (auto ok = filler.op(entry); !ok) return ok;
    }
  }
  return {};
}

}  // namespace attnscope
