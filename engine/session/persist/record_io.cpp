#include "engine/session/persist/record_io.h"

#include "engine/io/old_names.h"

namespace attnscope {
namespace {

// Bytes that one of them takes at least: bounds what a list can claim to hold.
constexpr std::size_t kSmallestRecord = 90, kSmallestResult = 85, kSmallestTiming = 28,
                      kFormerTiming = 16;

template <class T>
void write_optional(ByteWriter& out, const std::optional<T>& v) {
  out.value<std::uint8_t>(v ? 1 : 0);
  if (v) out.value(*v);
}

template <class T>
std::optional<T> read_optional(ByteReader& in) {
  const auto there = in.value<std::uint8_t>();
  if (there > 1) in.fail();
  return there == 1 ? std::optional<T>(in.value<T>()) : std::nullopt;
}

// An enumerator below `end`.
template <class E>
E read_enum(ByteReader& in, int end) {
  const auto v = in.value<std::int32_t>();
  if (v < 0 || v >= end) in.fail();
  return static_cast<E>(in.ok() ? v : 0);
}

void write_result(ByteWriter& out, const TapResult& r) {
  out.value(r.step);
  out.value(std::int32_t{r.layer});
  out.value(static_cast<std::int32_t>(r.op));
  out.text(r.tap);
  out.text(r.lane);
  out.list(r.shape);
  out.text(r.dtype);
  out.value(r.elements);
  write_optional(out, r.introduced);
  write_optional(out, r.inherited);
  write_optional(out, r.quantisation);
  write_optional(out, r.selection);
  out.text(r.tolerance);
  out.value(r.budget_used);
  out.value(static_cast<std::int32_t>(r.verdict));
  out.value<std::uint8_t>(r.worst ? 1 : 0);
  if (r.worst) {
    out.list(r.worst->index);
    out.value(r.worst->value);
    out.value(r.worst->reference);
  }
  write_optional(out, r.mass_moved);
  out.text(r.note);
}

TapResult read_result(ByteReader& in) {
  TapResult r;
  r.step = in.value<std::int64_t>();
  r.layer = in.value<std::int32_t>();
  r.op = read_enum<as_op_id>(in, AS_OP_COUNT);
  r.tap = tap_name_now(r.op, in.text());
  r.lane = in.text();
  r.shape = in.list<std::int64_t>();
  r.dtype = in.text();
  r.elements = in.value<std::int64_t>();
  r.introduced = read_optional<ErrorFigures>(in);
  r.inherited = read_optional<ErrorFigures>(in);
  r.quantisation = read_optional<ErrorFigures>(in);
  r.selection = read_optional<SelectionDrift>(in);
  r.tolerance = in.text();
  r.budget_used = in.value<double>();
  r.verdict = read_enum<Verdict>(in, kVerdicts);
  if (in.value<std::uint8_t>() == 1) {
    r.worst.emplace();
    r.worst->index = in.list<std::int64_t>();
    r.worst->value = in.value<double>();
    r.worst->reference = in.value<double>();
  }
  r.mass_moved = read_optional<double>(in);
  r.note = in.text();
  return r;
}

}  // namespace

void write_records(ByteWriter& out, const std::vector<StepRecord>& records) {
  out.value(std::uint64_t{records.size()});
  for (const StepRecord& r : records) {
    out.value(r.step);
    out.value(r.tokens);
    out.value(r.decisions);
    out.value<std::uint8_t>(r.decode_only ? 1 : 0);
    out.value<std::uint8_t>(r.selective ? 1 : 0);
    out.value(r.seconds);
    out.value(r.wall_seconds);
    out.value(std::uint64_t{r.timings.size()});
    for (const OpTiming& t : r.timings) {
      out.value(static_cast<std::int32_t>(t.op));
      out.value(std::int32_t{t.layer});
      out.value(t.microseconds);
      out.value(t.start);
      out.value(std::int32_t{t.stream});
    }
    out.value(std::uint64_t{r.results.size()});
    for (const TapResult& result : r.results) write_result(out, result);
    out.list(r.live);
    out.list(r.sampled);
    out.list(r.drafted);
    out.list(r.accepted);
    out.list(r.proposed);
  }
}

std::vector<StepRecord> read_records(ByteReader& in, RecordsOf age) {
  const bool with_decisions = age != RecordsOf::kWithoutDecisions;
  const bool with_starts = age == RecordsOf::kNow || age == RecordsOf::kWithoutProposed;
  const bool with_proposed = age == RecordsOf::kNow;
  const std::size_t smallest = kSmallestRecord - (with_decisions ? 0 : sizeof(std::int64_t));
  std::vector<StepRecord> records(in.count(smallest));
  for (StepRecord& r : records) {
    r.step = in.value<std::int64_t>();
    r.tokens = in.value<std::int64_t>();
    if (with_decisions) r.decisions = in.value<std::int64_t>();
    r.decode_only = in.value<std::uint8_t>() != 0;
    r.selective = in.value<std::uint8_t>() != 0;
    r.seconds = in.value<double>();
    r.wall_seconds = in.value<double>();
    r.timings.resize(in.count(with_starts ? kSmallestTiming : kFormerTiming));
    for (OpTiming& t : r.timings) {
      t.op = read_enum<as_op_id>(in, AS_OP_COUNT);
      t.layer = in.value<std::int32_t>();
      t.microseconds = in.value<double>();
      if (!with_starts) continue;
      t.start = in.value<double>();
      t.stream = in.value<std::int32_t>();
      if (t.stream < 0 || t.stream >= OpTiming::kMostStreams) in.fail();
    }
    r.results.resize(in.count(kSmallestResult));
    for (TapResult& result : r.results) result = read_result(in);
    r.live = in.list<std::int32_t>();
    r.sampled = in.list<std::int32_t>();
    r.drafted = in.list<std::int32_t>();
    r.accepted = in.list<std::int32_t>();
    if (with_proposed) r.proposed = in.list<std::int32_t>();
    if (!in.ok()) break;
  }
  return records;
}

}  // namespace attnscope
