#include <nlohmann/json.hpp>

#include "app/reports/scale_report.h"

namespace attnscope {
namespace {

using Json = nlohmann::ordered_json;

Json optional_number(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json how_json(const ScaleHow& how) {
  const bool gpu = !how.gpu.empty();
  return {{"date", how.date},
          {"lane", how.lane},
          {"model", how.model},
          {"requests", how.requests},
          {"processor", how.processor},
          {"threads", how.threads},
          {"simd", how.simd},
          {"compiler", how.compiler},
          {"gpu", gpu ? Json(how.gpu) : Json(nullptr)},
          {"driver", gpu ? Json(how.driver) : Json(nullptr)},
          {"cuda", gpu ? Json(how.cuda) : Json(nullptr)},
          {"last_level_cache_bytes", how.cache_bytes},
          {"passes", how.rounds.passes},
          {"calls_of_a_round", how.rounds.calls},
          {"warm_rounds", how.rounds.warm},
          {"counted_rounds", how.rounds.counted},
          {"method", how.method}};
}

Json fit_json(const ScaleLine& line) {
  if (!line.fit) return nullptr;
  const LinearFit& fit = *line.fit;
  return {
      {"over", line.flat ? "context" : "x"},
      {"slope", slope_ns(line)},
      {"slope_error", fit.slope_error ? Json(*fit.slope_error * slope_scale(line)) : Json(nullptr)},
      {"slope_unit", "ns/" + slope_unit(line)},
      {"intercept_us", fit.intercept},
      {"r2", optional_number(fit.r2)},
      {"meaningful", fit.meaningful()},
      {"max_over_min", fit.spread}};
}

Json line_json(const ScaleLine& line) {
  Json points = Json::array();
  for (const ScalePoint& p : line.points) {
    points.push_back({{"context", p.context}, {"x", p.x}, {"us", p.us}, {"calls", p.calls}});
  }
  return {{"op", line.name},
          {"layer", line.variant.empty() ? Json(nullptr) : Json(line.variant)},
          {"x_unit", line.unit},
          {"reads", line.reads},
          {"expected", line.flat ? "flat" : "linear"},
          {"points", points},
          {"fit", fit_json(line)}};
}

}  // namespace

Json scale_json(const ScaleResult& result) {
  Json ops = Json::array(), memory = Json::array(), blocks = Json::array();
  for (const ScaleLine& line : result.lines) ops.push_back(line_json(line));
  for (const ScaleMemory& m : result.memory) {
    memory.push_back({{"context", m.context},
                      {"kept_blocks", m.kept_blocks},
                      {"kept_bytes_per_token", m.kept_per_token},
                      {"layout_kept_bytes_per_token", m.report_kept_per_token},
                      {"held_blocks", m.held_blocks},
                      {"layout_held_blocks", m.report_held_blocks},
                      {"held_bytes_per_token", m.held_per_token},
                      {"layout_held_bytes_per_token", m.report_held_per_token},
                      {"equal", m.equal}});
  }
  for (const ScaleBlocks& b : result.blocks) {
    blocks.push_back({{"blocks", b.blocks},
                      {"get_release_ns", b.get_release_ns},
                      {"get_evict_cache_release_ns", b.evict_ns},
                      {"evicted_share", b.evicted}});
  }
  return {{"format", "attnscope-scale"},           {"version", 1},
          {"how", how_json(result.how)},           {"ops", ops},
          {"left_out", result.left_out},           {"memory", memory},
          {"memory_equal", result.memory_equal()}, {"block_manager", blocks}};
}

}  // namespace attnscope
