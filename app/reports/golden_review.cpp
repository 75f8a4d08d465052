#include "app/reports/golden_review.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "app/reports/capture_record.h"
#include "app/text/format.h"
#include "app/text/git_commit.h"
#include "app/text/state_folder.h"
#include "app/text/text.h"
#include "engine/config/scenario.h"
#include "engine/io/assets_folder.h"
#include "engine/io/printable.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kWidestSide = 34;
constexpr std::size_t kMostDeltas = 8;
constexpr std::size_t kMostPrinted = 3;  // in a terminal

const GoldenTap* find_tap(const GoldenValues& values, const GoldenFinding& finding) {
  const auto it = std::ranges::find_if(values.taps, [&](const GoldenTap& t) {
    return t.where == finding.where && t.tap == finding.tap;
  });
  return it != values.taps.end() ? &*it : nullptr;
}

std::string padded(std::string_view text) {
  return fmt::format("{:<{}}", shortened(printable(text), kWidestSide - 3), kWidestSide);
}

void add_line(std::string& out, const std::string& what, const std::string& accepted,
              const std::string& received, const std::string& delta) {
  out += fmt::format("    {:<20} {} {} {}\n", printable(what), padded(accepted), padded(received),
                     delta);
}

// One side in a short text.
std::string whole(const GoldenTap* tap) {
  if (tap == nullptr) return "none";
  if (tap->stats) {
    return fmt::format("mean {}, l2 {}", format_number(tap->stats->mean),
                       format_number(tap->stats->l2));
  }
  if (!tap->sets.empty()) return tap->sets.front();
  if (!tap->numbers.empty()) return fmt::format("{}", fmt::join(tap->numbers, " "));
  return tap->parts.empty() ? "nothing" : tap->parts.front().checksum;
}

void format_tap(const GoldenReviewTap& tap, std::string& out) {
  const GoldenFinding& f = tap.finding;
  out +=
      fmt::format("  {} {}: {}{}\n", printable(f.where), printable(f.tap),
                  golden_verdict_name(f.verdict), f.note.empty() ? "" : ", " + printable(f.note));
  const GoldenTap *a = tap.accepted, *b = tap.received;
  if (a == nullptr && b == nullptr) return;
  add_line(out, "", "accepted", "received", "");
  if (tap.deltas.empty()) {
    for (const GoldenSides& s : golden_sides(tap, kMostPrinted)) {
      add_line(out, s.what, s.accepted, s.received, "");
    }
  }
  for (const GoldenDelta& d : tap.deltas) {
    add_line(out, d.what, format_number(d.accepted), format_number(d.received),
             format_number(d.received - d.accepted));
  }
}

}  // namespace

std::vector<GoldenSides> golden_sides(const GoldenReviewTap& tap, std::size_t most) {
  const GoldenTap none;  // of the side that has no such tap
  const GoldenTap* a = tap.accepted != nullptr ? tap.accepted : &none;
  const GoldenTap* b = tap.received != nullptr ? tap.received : &none;
  std::vector<GoldenSides> sides;
  const auto compare = [&](const char* what, const auto& left, const auto& right,
                           const auto& text) {
    for (std::size_t i = 0; i < std::max(left.size(), right.size()) && sides.size() < most; ++i) {
      const std::string l = i < left.size() ? text(left[i]) : "none";
      const std::string r = i < right.size() ? text(right[i]) : "none";
      if (l != r) sides.push_back({fmt::format("{} {}", what, i), l, r});
    }
  };
  compare("row", a->sets, b->sets, [](const std::string& set) { return set; });
  compare("element", a->numbers, b->numbers, [](std::int64_t v) { return std::to_string(v); });
  if (sides.empty()) {
    compare("checksum of part", a->parts, b->parts, [](const GoldenPart& p) { return p.checksum; });
  }
  if (!sides.empty()) return sides;
  sides.push_back({"value", whole(tap.accepted), whole(tap.received)});
  if (a != &none && b != &none) return sides;  // the figures that differ are deltas
  const auto figures = [](const GoldenTap& t) {
    std::vector<std::pair<std::string, double>> out;
    if (!t.stats) return out;
    out = {{"min", t.stats->min},
           {"max", t.stats->max},
           {"NaN", static_cast<double>(t.stats->nans)},
           {"infinities", static_cast<double>(t.stats->infinities)}};
    for (std::size_t i = 0; i < t.at.size(); ++i) {
      out.emplace_back(fmt::format("element {}", t.at[i]), t.values[i]);
    }
    return out;
  };
  for (const GoldenTap* side : {a, b}) {
    for (const auto& [what, value] : figures(*side)) {
      if (sides.size() >= most) return sides;
      const std::string text = format_number(value);
      sides.push_back({what, side == a ? text : "none", side == b ? text : "none"});
    }
  }
  return sides;
}

void link_taps(GoldenReview& review) {
  review.is_new = review.accepted.taps.empty();
  review.taps.clear();
  if (review.is_new) {
    for (const GoldenTap& t : review.received.taps) {
      review.taps.push_back(
          {{t.where, t.tap, GoldenVerdict::kUnexpected, 0, "new"}, nullptr, &t, {}});
    }
    return;
  }
  for (const GoldenFinding& f : review.received.findings) {
    if (!is_failure(f.verdict)) continue;
    GoldenReviewTap tap{f, find_tap(review.accepted, f), find_tap(review.received, f), {}};
    if (tap.accepted != nullptr && tap.received != nullptr) {
      tap.deltas = golden_deltas(*tap.accepted, *tap.received, kMostDeltas);
    }
    review.taps.push_back(std::move(tap));
  }
}

Result<GoldenReview> review_golden(const GoldenFolder& folder, const std::string& name) {
  const auto it = folder.entries().find(name);
  if (it == folder.entries().end() || !it->second.received) {
    return bad_input(fmt::format("{}: nothing is pending", name),
                     "attnscope golden list shows what is");
  }
  GoldenReview review;
  review.name = name;
  auto spec = folder.spec(name);
  if (!spec) return spec.error();
  review.about = spec->about;
  auto received = folder.values(name, kReceivedSuffix);
  if (!received) return received.error();
  review.received = std::move(*received);
  if (it->second.accepted) {
    auto accepted = folder.values(name, kAcceptedSuffix);
    if (!accepted) return accepted.error();
    review.accepted = std::move(*accepted);
  }
  link_taps(review);
  review.received_by = origin_text(review.received.origin);
  if (review.is_new) {
    review.sentence =
        fmt::format("new: {} values, of which none was accepted yet", review.received.taps.size());
    return review;
  }
  review.accepted_by = origin_text(review.accepted.origin);
  review.sentence = golden_sentence(review.received.findings);
  if (review.accepted.definition != spec->digest) {
    review.sentence =
        "its definition has changed since its values were accepted; " + review.sentence;
  } else if (review.accepted.inputs != review.received.inputs) {
    review.sentence = "its scenario or a prompt has changed since then; " + review.sentence;
  }
  return review;
}

GoldenReview review_pending(const GoldenFolder& folder, const std::string& name) {
  auto review = review_golden(folder, name);
  if (review) return std::move(*review);
  GoldenReview damaged;
  damaged.name = name;
  damaged.sentence = review.error().text();
  return damaged;
}

std::optional<std::pair<double, double>> sample_range(const GoldenTap& a, const GoldenTap& b) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const auto* values : {&a.values, &b.values}) {
    for (const double v : *values) {
      if (!std::isfinite(v)) continue;
      low = std::min(low, v);
      high = std::max(high, v);
    }
  }
  if (!(low <= high)) return std::nullopt;
  return std::pair(low, high);
}

std::string format_review(const GoldenReview& review, std::size_t most) {
  std::string out = fmt::format("{}: {}\n  {}\n", printable(review.name), printable(review.about),
                                printable(review.sentence));
  if (!review.accepted_by.empty())
    out += fmt::format("  accepted: {}\n", printable(review.accepted_by));
  if (!review.received_by.empty())
    out += fmt::format("  received: {}\n", printable(review.received_by));
  for (std::size_t i = 0; i < std::min(most, review.taps.size()); ++i) {
    format_tap(review.taps[i], out);
  }
  if (review.taps.size() > most) {
    out += fmt::format("  and {} more\n", review.taps.size() - most);
  }
  return out;
}

GoldenOrigin golden_origin(const std::string& folder) {
  GoldenOrigin origin;
  const CaptureOrigin here = capture_origin(Scenario{});
  origin.program = here.program;
  for (const CaptureProperty& p : here.machine) {
    for (const char* wanted : {"processor", "SIMD", "GPU", "compiler"}) {
      if (p.name == wanted) origin.machine.push_back(p);
    }
  }
  std::ifstream driver("/proc/driver/nvidia/version");
  std::string line;
  std::getline(driver, line);
  origin.machine.push_back({"driver", line.empty() ? "none" : std::string(trimmed(line))});
  origin.commit = git_commit(folder);
  return origin;
}

std::string origin_text(const GoldenOrigin& origin) {
  std::string out = origin.reason.empty() ? "" : fmt::format("\"{}\", ", origin.reason);
  out += origin.commit.empty() ? "no commit" : "commit " + origin.commit.substr(0, 12);
  for (const CaptureProperty& p : origin.machine) {
    if (p.value == "none" || p.name == "compiler") continue;
    out += fmt::format(", {}{}", p.name == "SIMD" ? "" : p.name + " ", p.value);
  }
  return out;
}

std::string golden_folder(const std::string& named) {
  if (!named.empty()) return named;
  std::error_code code;
  std::string here = "tests/goldens";
  if (fs::is_directory(here, code)) return here;
  const auto assets = assets_folder();
  if (!assets) return here;
  const fs::path beside = fs::path(*assets).parent_path() / here;
  return fs::is_directory(beside, code) ? beside.string() : here;
}

Result<GoldenFolder> open_goldens(const std::string& named, const std::string& large) {
  auto folder = GoldenFolder::open(golden_folder(named));
  if (!folder) return folder;
  if (!large.empty()) {
    folder->keep_large_in(large);
  } else if (const auto state = state_folder()) {
    folder->keep_large_in(*state + "/goldens");
  }
  return folder;
}

}  // namespace attnscope
