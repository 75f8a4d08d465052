// Commands that describe: ops, model describe, doctor.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/cli/commands.h"
#include "app/reports/doctor.h"
#include "app/reports/report.h"
#include "app/text/say.h"
#include "app/wiring/find_model.h"
#include "app/wiring/wiring.h"
#include "engine/family/family.h"
#include "kernels/params/op_table.h"

namespace attnscope {
namespace {

using nlohmann::json;

struct OpTest {
  as_op_id op;
  const char* file;
};
constexpr OpTest kOpTests[] = {
#include "op_tests.inc"
    {AS_OP_COUNT, nullptr}};

std::vector<std::string> tests_of(as_op_id op) {
  std::vector<std::string> files;
  for (const OpTest& test : kOpTests) {
    if (test.op == op && test.file != nullptr) files.emplace_back(test.file);
  }
  return files;
}

std::string where(const as_op_info& op) {
  if (op.phase == AS_PHASE_BEFORE) return "step, before the layers";
  if (op.phase == AS_PHASE_AFTER) return "step, after the layers";
  if (op.phase == AS_PHASE_NONE) return "no place in a step: run as a case";
  // Of the first family that has it: its types of layers, or all.
  for (const Family* family : families()) {
    const ModelConfig model = example_model(*family);
    std::vector<std::string> types;
    bool every = true;
    for (int i = 0; i < model.num_layers(); ++i) {
      const std::string type = family->layer_type(model, i);
      const bool there = example_graph(*family).layer(i).find(op.id) != nullptr;
      every = every && there;
      if (there && std::ranges::count(types, type) == 0) types.push_back(type);
    }
    if (!types.empty()) {
      return every ? "every layer" : fmt::format("{} layers", fmt::join(types, " and "));
    }
  }
  return op.layers == AS_LAYER_DENSE ? "layers of dense attention" : "no layer";
}

std::vector<std::string> traits_of(const as_op_info& op) {
  std::vector<std::string> traits;
  if ((op.traits & AS_ROTATES) != 0) traits.emplace_back("rotates");
  if ((op.traits & AS_QUANTISES) != 0) traits.emplace_back("quantises");
  if ((op.traits & AS_FUSES) != 0) traits.emplace_back("may be fused");
  if ((op.traits & AS_BY_ENGINE) != 0) traits.emplace_back("by the engine");
  return traits;
}

json op_json(const as_op_info& op, const LaneRegistry& lanes) {
  json taps = json::array();
  for (std::uint32_t i = 0; i < op.num_taps; ++i) {
    const as_tap_info& tap = op.taps[i];
    json t = {{"name", tap.name},
              {"direction", tap.direction == AS_TAP_OUT ? "out" : "in"},
              {"axes", tap.axes},
              {"dtype", tap.dtype},
              {"optional", tap.optional != 0}};
    if (tap.direction == AS_TAP_OUT) t["tolerance"] = tap.rule;
    taps.push_back(std::move(t));
  }
  std::vector<std::string> names = lanes.lanes_of(op.id);
  std::vector<std::string> references;
  for (const std::string& name : names) {
    if (name.starts_with("ref.")) references.push_back(name);
  }
  std::erase_if(names, [](const std::string& name) { return name.starts_with("ref."); });
  return {{"id", op.name},
          {"number", static_cast<int>(op.id)},
          {"summary", op.summary},
          {"where", where(op)},
          {"role", as_role_name(op.role)},
          {"traits", traits_of(op)},
          {"taps", taps},
          {"lanes", names},
          {"references", references},
          {"tests", tests_of(op.id)}};
}

std::string bytes_text(std::int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  if (bytes < 10 * 1024 * 1024) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024);
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1024 * 1024));
}

// What follows the bytes of the parameters.
std::string format_text(const json& m) {
  if (m.at("projections") == "bf16") return " in bf16";
  const auto left = m.at("projections_left_in_bf16").get<std::vector<std::string>>();
  if (left.empty()) return ", the large projections in FP8";
  return fmt::format(", the large projections in FP8 but for {}", fmt::join(left, ", "));
}

void print_model(const json& m) {
  say("{}: {} of {} published layers, {} parameters, vocabulary {}\n",
      m.at("name").get<std::string>(), m.at("layers").size(), m.at("published_layers").get<int>(),
      m.at("parameters").get<std::int64_t>(), m.at("vocabulary").get<int>());
  say("  ({})\n\n", m.at("scope").get<std::string>());
  for (const char* key : {"hidden", "heads", "kv_heads", "head_dim", "q_lora", "o_lora", "o_groups",
                          "window", "index_heads", "index_dim", "index_topk"}) {
    if (!m.at(key).is_null() && m.at(key) != 0) say("  {:<12} {:>7}\n", key, m.at(key).get<int>());
  }
  if (!m.at("index_rows").is_null()) {
    say("  {:<12} {:>7}\n", "index_rows", m.at("index_rows").get<std::string>());
  }
  say("\nlayers:");
  for (const json& layer : m.at("layers")) {
    say(" {}:{}", layer.at("layer").get<int>(), layer.at("type").get<std::string>());
    if (layer.contains("shares_with")) say("(rows of {})", layer.at("shares_with").get<int>());
  }
  say("\n\n{:<12}{:>8}{:>12}{:>16}  caches (rows per block, page bytes)\n", "group", "tokens",
      "window", "bytes a block");
  for (const json& g : m.at("groups")) {
    const std::string window = !g.at("chunk").is_null() ? "chunk " + g.at("chunk").dump()
                               : !g.at("first_tokens").is_null()
                                   ? "first " + g.at("first_tokens").dump()
                               : !g.at("window").is_null() ? g.at("window").dump()
                                                           : "-";
    say("{:<12}{:>8}{:>12}{:>16}  ", g.at("name").get<std::string>(),
        g.at("block_tokens").get<int>(), window, g.at("bytes_per_block").get<std::int64_t>());
    std::size_t shown = 0;
    for (const json& c : g.at("caches")) {
      if (++shown > 6) {
        say("… {} more", g.at("caches").size() - 6);
        break;
      }
      say("{}/{} ({}, {})  ", c.at("layer").get<int>(), c.at("cache").get<std::string>(),
          c.at("rows_per_block").get<int>(), c.at("page_bytes").get<std::int64_t>());
    }
    say("\n");
  }
  const std::int64_t stride = m.at("block_stride_bytes");
  say("\nevery block id costs {} bytes ({}), the largest group\n"
      "full group: {:.1f} bytes a token for good; a decoding request holds up to {} windowed "
      "blocks "
      "besides\nparameters: {}{}\n",
      stride, bytes_text(stride), m.at("full_group_bytes_per_token").get<double>(),
      m.at("decode_blocks_per_request").get<std::int64_t>(),
      bytes_text(m.at("parameter_bytes").get<std::int64_t>()), format_text(m));
}

}  // namespace

Result<as_status> ops_command(bool as_json) {
  const LaneRegistry lanes = all_lanes();
  json table = json::array();
  for (int i = 0; const as_op_info* op = as_op_at(i); ++i) table.push_back(op_json(*op, lanes));
  if (as_json) {
    say_json(json{{"format", "attnscope-ops"}, {"version", 1}, {"ops", table}});
    return AS_OK;
  }
  for (const json& op : table) {
    std::vector<std::string> is = op.at("traits");
    is.insert(is.begin(), op.at("role").get<std::string>());
    say("{}  ({})\n  {}\n  role   {}\n", op.at("id").get<std::string>(),
        op.at("where").get<std::string>(), op.at("summary").get<std::string>(),
        fmt::join(is, ", "));
    for (const char* direction : {"in", "out"}) {
      std::vector<std::string> taps;
      for (const json& tap : op.at("taps")) {
        if (tap.at("direction") != direction) continue;
        taps.push_back(fmt::format("{}[{}] {}{}", tap.at("name").get<std::string>(),
                                   tap.at("axes").get<std::string>(),
                                   tap.at("dtype").get<std::string>(),
                                   tap.at("optional").get<bool>() ? " (optional)" : ""));
      }
      say("  {:<6} {}\n", direction, fmt::join(taps, "; "));
    }
    say("  lanes  {}\n  refs   {}\n  tests  {}\n\n",
        fmt::join(op.at("lanes").get<std::vector<std::string>>(), ", "),
        fmt::join(op.at("references").get<std::vector<std::string>>(), ", "),
        fmt::join(op.at("tests").get<std::vector<std::string>>(), ", "));
  }
  return AS_OK;
}

Result<as_status> lanes_command(bool as_json) {
  const LaneRegistry lanes = all_lanes();
  json table = json::array();
  for (const Lane& lane : lanes.all()) {
    std::vector<std::string> ops;
    for (int i = 0; const as_op_info* op = as_op_at(i); ++i) {
      if (lane.ops[op->id] != nullptr) ops.emplace_back(op->name);
    }
    table.push_back({{"name", lane.name}, {"description", lane.description}, {"ops", ops}});
  }
  if (as_json) {
    say_json(json{{"format", "attnscope-lanes"}, {"version", 1}, {"lanes", table}});
    return AS_OK;
  }
  for (const json& lane : table) {
    const auto ops = lane.at("ops").get<std::vector<std::string>>();
    say("{:<36} {:<26} {}\n", lane.at("name").get<std::string>(),
        ops.empty()       ? "not here"
        : ops.size() == 1 ? ops[0]
                          : fmt::format("{} ops", ops.size()),
        lane.at("description").get<std::string>());
  }
  say("\nrun SCENARIO --lane NAME, or --lane OP=NAME for one op. A mutant is the CPU lane with one "
      "op wrong on purpose.\n");
  return AS_OK;
}

Result<as_status> describe_command(const DescribeCommand& command) {
  auto config = find_model(command.model, command.layers, command.profile);
  if (!config) return config.error();
  json model = describe_model(*config);
  if (command.json) {
    model["format"] = "attnscope-model-describe";
    model["version"] = 1;
    say_json(model);
  } else {
    print_model(model);
  }
  return AS_OK;
}

Result<as_status> doctor_command(bool as_json) {
  const std::vector<DoctorLine> lines = examine();
  if (as_json) {
    json rows = json::array();
    for (const DoctorLine& line : lines) {
      rows.push_back(
          {{"what", line.what}, {"found", line.found}, {"ok", line.ok}, {"note", line.note}});
    }
    say_json(json{{"format", "attnscope-doctor"}, {"version", 1}, {"lines", rows}});
    return AS_OK;
  }
  for (const DoctorLine& line : lines) {
    say("{} {:<14} {}\n", line.ok ? "ok" : "--", line.what, line.found);
    if (!line.note.empty()) say("                  {}\n", line.note);
  }
  return AS_OK;
}

}  // namespace attnscope
