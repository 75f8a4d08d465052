#include "app/cli/mask_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/text/format.h"
#include "app/text/say.h"
#include "app/views/block_mask_view.h"
#include "engine/backend/block_mask.h"
#include "engine/family/models.h"

namespace attnscope {
namespace {

constexpr std::int64_t kMostPairs = std::int64_t{1} << 28;  // some ten seconds

struct MaskShow {
  std::string of;  // a preset, or an expression
  std::string score;
  std::int64_t tokens = 256, keys = 0, heads = 1;
  bool json = false;
};

struct NamedMask {
  std::string name, text, score;
  std::optional<std::int64_t> place = {};  // of the first query
};

// The masks of a model's layers, each once, with the layers that have it.
std::vector<NamedMask> masks_of(const ModelConfig& c) {
  std::vector<NamedMask> masks;
  std::string score = c.dense.score;
  if (score.empty() && c.dense.soft_cap > 0) score = fmt::format("soft_cap({})", c.dense.soft_cap);
  for (int i = 0; i < c.num_layers(); ++i) {
    const std::string text = layer_mask(c, i);
    const auto place = place_of_first(c, i);
    const auto at = std::ranges::find_if(
        masks, [&](const NamedMask& m) { return m.text == text && m.place == place; });
    const int layer = c.layers[static_cast<std::size_t>(i)];
    if (at == masks.end()) {
      masks.push_back({fmt::format("layers {}", layer), text, score, place});
    } else {
      at->name += fmt::format(", {}", layer);
    }
  }
  return masks;
}

Result<std::vector<NamedMask>> masks_asked(const MaskShow& show) {
  const auto presets = preset_names();
  if (std::ranges::find(presets, show.of) == presets.end()) {
    return std::vector<NamedMask>{{"expression", show.of, show.score}};
  }
  const Result<ModelConfig> config = preset(show.of);
  if (!config) return config.error();
  if (config->family != "dense") {
    return bad_input(fmt::format("{} attends over what it selects, not by a mask", show.of),
                     "give an expression, or a model of dense attention such as tiny-gemma");
  }
  return masks_of(*config);
}

nlohmann::json mask_json(const NamedMask& mask, const BlockMask& tiles) {
  const BlockMask::Counts& c = tiles.counts();
  nlohmann::json maps = nlohmann::json::array();
  for (std::int64_t m = 0; m < tiles.maps(); ++m) maps.push_back(tiles.drawing(0, m));
  return {{"name", mask.name},
          {"mask", mask.text},
          {"score", mask.score},
          {"queries_of_a_tile", AS_MASK_QUERIES},
          {"keys_of_a_tile", AS_MASK_KEYS},
          {"empty", c.empty},
          {"partial", c.partial},
          {"full", c.full},
          {"pairs_seen", c.seen},
          {"pairs", c.elements},
          {"maps", maps}};
}

void print_mask(const NamedMask& mask, const BlockMask& tiles) {
  const BlockMask::Counts& c = tiles.counts();
  const auto share = [&](std::int64_t n) {
    return format_share(static_cast<double>(n) /
                        static_cast<double>(std::max<std::int64_t>(1, c.tiles())));
  };
  say("{}: {}\n", mask.name, mask.text);
  if (!mask.score.empty()) say("  scores: {}\n", mask.score);
  say("  {} tiles of {} queries and {} keys: {} empty and left out ({}), {} full and not "
      "asked ({}), {} partial; {} of {} pairs are seen\n",
      c.tiles(), AS_MASK_QUERIES, AS_MASK_KEYS, c.empty, share(c.empty), c.full, share(c.full),
      c.partial, c.seen, c.elements);
  for (std::int64_t m = 0; m < tiles.maps(); ++m) {
    if (tiles.maps() > 1) say("  head {}\n", m);
    std::string row;
    for (const char sign : tiles.drawing(0, m)) {
      if (sign != '\n') {
        row += sign;
        continue;
      }
      say("    {}\n", row);
      row.clear();
    }
  }
}

Result<as_status> mask_show(const MaskShow& show) {
  const auto masks = masks_asked(show);
  if (!masks) return masks.error();
  nlohmann::json all = nlohmann::json::array();
  for (const NamedMask& mask : *masks) {
    const auto code = parse_mask(mask.text);
    if (!code) {
      return bad_input(
          fmt::format("{}: neither a preset nor a mask, {}", mask.text, code.error().message),
          code.error().hint);
    }
    if (!mask.score.empty()) {
      if (const auto score = parse_score(mask.score); !score) {
        return bad_input(fmt::format("--score {}: {}", mask.score, score.error().message),
                         score.error().hint);
      }
    }
    const MaskedSequence sequence{show.tokens, show.keys > 0 ? show.keys : show.tokens, mask.place};
    const std::int64_t maps = code->uses(AS_MASK_HEAD) ? show.heads : 1;
    if (const std::int64_t pairs = sequence.queries * sequence.keys * maps; pairs > kMostPairs) {
      return usage_error(
          fmt::format("{} queries, {} keys and {} heads are {} pairs, each of which is asked for",
                      sequence.queries, sequence.keys, maps, pairs),
          fmt::format("{} at most: give fewer --tokens, --keys or --heads", kMostPairs));
    }
    const BlockMask tiles(*code, {&sequence, 1}, show.heads);
    if (show.json) {
      all.push_back(mask_json(mask, tiles));
    } else {
      print_mask(mask, tiles);
    }
  }
  if (show.json) {
    say_json(nlohmann::json{{"format", "attnscope-masks"}, {"version", 1}, {"masks", all}});
  }
  if (!show.json) say(". empty   + partial   # full\n");
  return AS_OK;
}

}  // namespace

void add_mask_command(CLI::App& app, std::function<Result<as_status>()>& action) {
  auto* masks = app.add_subcommand("mask", "Masks of attention as tiles: empty, partial, full");
  masks->require_subcommand(1);
  auto* command = masks->add_subcommand("show", "Draw the tiles of a model's masks, or of a mask");
  auto show = std::make_shared<MaskShow>();
  command->add_option("MASK", show->of, "A preset, or an expression: \"sliding(64) || kv_idx < 4\"")
      ->required();
  command->add_option("--score", show->score, "A score function: \"soft_cap(20)\"; it is checked");
  command->add_option("--tokens", show->tokens, "Queries of the sequence (256)")
      ->check(CLI::Range(1, 8192));
  command->add_option("--keys", show->keys, "Its keys (as many as queries)")
      ->check(CLI::Range(1, 8192));
  command->add_option("--heads", show->heads, "Heads of a mask that asks for the head (1)")
      ->check(CLI::Range(1, 256));
  command->add_flag("--json", show->json, "Print as JSON");
  command->callback([=, &action] { action = [=] { return mask_show(*show); }; });
}

}  // namespace attnscope
