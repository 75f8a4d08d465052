#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "app/reports/scale_report.h"
#include "app/text/format.h"
#include "engine/io/printable.h"

namespace attnscope {
namespace {

std::string header(const ScaleHow& how) {
  return fmt::format(
      "bench scale, {}, lane {}: {}\n"
      "{} sizes, {} of one decoded token a call\n"
      "{} of up to {} calls on inputs of their own\n"
      "{}; before each round the last-level cache ({}) is overwritten\n",
      how.date, how.lane, scale_machine(how), how.model,
      plural(how.requests, "request", "requests"), scale_statistic(how.rounds), how.rounds.calls,
      how.method, format_bytes(static_cast<double>(how.cache_bytes)));
}

std::string times(const std::vector<ScaleLine>& lines) {
  std::set<std::int64_t> contexts;
  std::string names = "\n  context", variants = fmt::format("\n{:>9}", ""), units = variants;
  for (const ScaleLine& line : lines) {
    names += fmt::format("{:>21}", line.name);
    variants += fmt::format("{:>21}", line.variant);
    units += fmt::format("{:>21}", fmt::format("us ({}s)", line.unit));
    for (const ScalePoint& point : line.points) contexts.insert(point.context);
  }
  variants.erase(variants.find_last_not_of(' ') + 1);
  std::string out = names + variants + units + '\n';
  for (const std::int64_t context : contexts) {
    out += fmt::format("{:>9}", short_count(context));
    for (const ScaleLine& line : lines) {
      const auto point = std::ranges::find(line.points, context, &ScalePoint::context);
      out += fmt::format("{:>21}", point == line.points.end()
                                       ? "-"
                                       : fmt::format("{:.2f} {:>7}", point->us,
                                                     "(" + short_count(point->x) + ")"));
    }
    out += '\n';
  }
  return out;
}

std::string r2_text(const LinearFit& fit) {
  std::string number = fit.r2 ? fmt::format("R2 {:.4f}", *fit.r2) : "R2 -";
  if (fit.meaningful()) return number;
  return number + (fit.slope_error ? " (not meaningful: the slope is within noise)"
                                   : " (not meaningful: two points)");
}

std::string fits(const std::vector<ScaleLine>& lines) {
  std::string out = "\nleast-squares lines\n";
  for (const ScaleLine& line : lines) {
    out += fmt::format("  {}: {}\n", scale_title(line), line.reads);
    if (!line.fit) continue;
    const LinearFit& fit = *line.fit;
    std::string error;
    if (fit.slope_error) error = " +- " + format_number(*fit.slope_error * slope_scale(line));
    out += fmt::format("    {} {}{} ns a {}, intercept {:.2f} us,",
                       line.flat ? "flat: slope" : "slope", format_number(slope_ns(line)), error,
                       slope_unit(line), fit.intercept);
    if (line.flat) out += fmt::format(" max/min {:.3f},", fit.spread);
    out += fit.meaningful() ? " " : "\n      ";
    out += r2_text(fit) + '\n';
  }
  return out;
}

std::string memory_text(const ScaleResult& r) {
  std::string out = fmt::format(
      "\nbytes of the caches a token, one request\n{:>9}{:>12}{:>14}{:>14}{:>12}{:>14}{:>14}\n",
      "context", "kept blocks", "kept B/token", "by layout", "all blocks", "all B/token",
      "by layout");
  for (const ScaleMemory& m : r.memory) {
    out += fmt::format("{:>9}{:>12}{:>14.1f}{:>14.1f}{:>12}{:>14.1f}{:>14.1f}{}\n",
                       short_count(m.context), m.kept_blocks, m.kept_per_token,
                       m.report_kept_per_token, m.held_blocks, m.held_per_token,
                       m.report_held_per_token, m.equal ? "" : "  differ");
  }
  return out + fmt::format(
                   "  {} what `attnscope blocks layout {}` says\n"
                   "  kept: blocks of tokens that are never dropped, once all are computed; "
                   "contexts are multiples\n  of a block, so nothing is rounded. all: with windows "
                   "and states while the next token is\n  decoded; both sides count begun blocks "
                   "whole, and every block id at the stride of the slab\n",
                   r.memory_equal() ? "equal to" : "NOT equal to", r.how.model);
}

std::string blocks_text(const ScaleResult& r) {
  std::string out =
      fmt::format("\nblock manager, ns a block ({})\n{:>9}{:>16}{:>32}\n", r.how.processor,
                  "blocks", "get + release", "get + evict + cache + release");
  double least[2] = {0, 0}, most[2] = {0, 0};
  for (const ScaleBlocks& b : r.blocks) {
    out += fmt::format("{:>9}{:>16.2f}{:>32.2f}\n", short_count(b.blocks), b.get_release_ns,
                       b.evict_ns);
    const double now[2] = {b.get_release_ns, b.evict_ns};
    for (int i = 0; i < 2; ++i) {
      least[i] = least[i] == 0 ? now[i] : std::min(least[i], now[i]);
      most[i] = std::max(most[i], now[i]);
    }
  }
  if (r.blocks.empty()) return "";
  return out + fmt::format("{:>9}{:>16.2f}{:>32.2f}\n", "max/min", most[0] / least[0],
                           most[1] / least[1]);
}

}  // namespace

std::string scale_title(const ScaleLine& line) {
  return line.variant.empty() ? line.name : line.name + ", " + line.variant;
}

std::string slope_unit(const ScaleLine& line) { return line.flat ? "1K tokens" : line.unit; }

double slope_scale(const ScaleLine& line) { return line.flat ? 1024 * 1000 : 1000; }

double slope_ns(const ScaleLine& line) { return line.fit->slope * slope_scale(line); }

std::string scale_machine(const ScaleHow& how) {
  if (!how.gpu.empty()) {
    return printable(fmt::format("{}, driver {}, CUDA {}", how.gpu, how.driver, how.cuda));
  }
  return printable(fmt::format("{}, {}, {}, {}", how.processor,
                               plural(how.threads, "thread", "threads"), how.simd, how.compiler));
}

std::string scale_statistic(const LaneTimer::Rounds& rounds) {
  if (rounds.passes == 1) return fmt::format("median of {} rounds", rounds.counted);
  return fmt::format("best of {} passes, each a median of {} rounds", rounds.passes,
                     rounds.counted);
}

std::string short_count(std::int64_t n) {
  constexpr std::int64_t kKilo = 1024, kMega = kKilo * kKilo;
  if (n >= kMega && n % kMega == 0) return fmt::format("{}M", n / kMega);
  if (n >= kKilo && n % kKilo == 0) return fmt::format("{}K", n / kKilo);
  return fmt::format("{}", n);
}

std::string scale_text(const ScaleResult& result) {
  std::string out = header(result.how) + times(result.lines);
  for (const std::string& sentence : result.left_out) out += "  left out: " + sentence + "\n";
  return out + fits(result.lines) + memory_text(result) + blocks_text(result);
}

}  // namespace attnscope
