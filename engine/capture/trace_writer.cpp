#include <map>
#include <utility>

#include "engine/capture/trace_arrays.h"
#include "engine/capture/trace_io.h"
#include "engine/model/numbers.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Adds tensors under a prefix; the same memory is written once.
class Payload {
 public:
  explicit Payload(TensorWriter& writer) : writer_(writer) {}

  template <class T, class A>
  void array(const std::string& name, const std::vector<T, A>& values) {
    writer_.add(name, element_of(kDtypeOf<T>), {to_count(values.size())}, values);
  }
  // stats: of the value, where they are known.
  std::string tensor(const std::string& name, const as_tensor& value,
                     const TapStats* stats = nullptr) {
    const auto sum = stats != nullptr ? checksum_of(*stats) : std::nullopt;
    const auto bytes = as_tensor_numel(&value) * as_dtype_size(value.dtype);
    const auto [it, fresh] = known_.try_emplace({value.data, bytes, value.dtype}, name);
    if (fresh) writer_.add(name, value, sum);
    // Seen under another shape: written again, since a tensor has one.
    if (!fresh && shapes_[it->second] != shape_of(value)) {
      writer_.add(name, value, sum);
      return name;
    }
    if (fresh) shapes_[name] = shape_of(value);
    return it->second;
  }
  static std::vector<std::int64_t> shape_of(const as_tensor& t) {
    return {t.shape, t.shape + t.rank};
  }

 private:
  TensorWriter& writer_;
  std::map<std::tuple<const void*, std::int64_t, std::int32_t>, std::string> known_;
  std::map<std::string, std::vector<std::int64_t>> shapes_;
};

// Ops share the copies of what one of them wrote and others read.
class StatsOnce {
 public:
  const TapStats& of(const as_tensor& tensor) {
    const auto [it, fresh] =
        known_.try_emplace({tensor.data, as_tensor_numel(&tensor), tensor.dtype});
    if (fresh) it->second = tap_stats(tensor);
    return it->second;
  }

 private:
  std::map<std::tuple<const void*, std::int64_t, std::int32_t>, TapStats> known_;
};

struct ArrayWriter {
  Payload& payload;
  std::string prefix;
  template <class T>
  void operator()(const char* name, const std::vector<T>& values) {
    payload.array(prefix + name, values);
  }
};

// Rows of whole numbers, one column a member.
struct ColumnWriter {
  std::vector<std::int64_t> out;
  template <class T>
  void operator()(const T& value) {
    out.push_back(static_cast<std::int64_t>(value));
  }
};

template <class T>
void add_table(TensorWriter& payload, const std::string& name, const std::vector<T>& items) {
  ColumnWriter writer;
  for (const T& item : items) columns(writer, const_cast<T&>(item));
  const std::int64_t width = items.empty() ? 0 : to_count(writer.out.size() / items.size());
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(writer.out.data());
  payload.add_owned(name, ElementType::kI64, {to_count(items.size()), width},
                    {bytes, bytes + writer.out.size() * sizeof(std::int64_t)});
}

void add_tables(const StepTrace& trace, TensorWriter& writer, Payload& payload) {
  ArrayWriter metadata{payload, "metadata/"}, step{payload, "step/"};
  arrays(metadata, const_cast<StepMetadata&>(trace.metadata));
  arrays(step, const_cast<StepTrace&>(trace));
  add_table(writer, "step/owners", trace.owners);
  add_table(writer, "step/cache_events", trace.cache_events);
  add_table(writer, "step/keys", trace.keys);
  for (std::size_t r = 0; r < trace.requests.size(); ++r) {
    const std::string prefix = "request/" + std::to_string(r) + "/";
    payload.array(prefix + "tokens", trace.requests[r].request.tokens);
    for (std::size_t g = 0; g < trace.requests[r].tables.size(); ++g) {
      payload.array(prefix + "table." + std::to_string(g), trace.requests[r].tables[g]);
    }
  }
}

TensorRef kind_of(const as_tensor& t) {
  TensorRef ref;
  ref.dtype = as_dtype_name(t.dtype);
  ref.shape = Payload::shape_of(t);
  return ref;
}

std::string place_name(const OpTrace& op) {
  return (op.place.layer < 0 ? std::string("-") : std::to_string(op.place.layer)) + "/" +
         as_op_find(op.place.op)->name + "/";
}

RowsEntry describe_rows(const RowsCopy& rows, const std::string& prefix, bool keep,
                        Payload& payload) {
  RowsEntry entry;
  entry.name = rows.name;
  entry.record = rows.record;
  entry.width = rows.width;
  entry.heads = rows.heads;
  entry.group = rows.group;
  entry.rows_per_block = rows.rows_per_block;
  entry.row_bytes = rows.row_bytes;
  entry.stats = tap_stats(make_tensor(rows.bytes.data(), {to_count(rows.bytes.size())}));
  if (!keep) return entry;
  entry.prefix = prefix + rows.name;
  entry.reference = !rows.reference.empty();
  payload.array(entry.prefix + ".tokens", rows.tokens);
  payload.array(entry.prefix + ".slots", rows.slots);
  payload.array(entry.prefix + ".bytes", rows.bytes);
  if (entry.reference) payload.array(entry.prefix + ".reference", rows.reference);
  return entry;
}

AttentionEntry describe_attention(const AttentionCopy& a, const std::string& prefix,
                                  Payload& payload) {
  const std::string name = prefix + "attention";
  payload.array(name + ".slots", a.slots);
  payload.array(name + ".window_len", a.window_len);
  payload.array(name + ".extra_len", a.extra_len);
  payload.array(name + ".logits", a.logits);
  payload.array(name + ".weights", a.weights);
  payload.array(name + ".sink_mass", a.sink_mass);
  payload.array(name + ".sinks", a.sinks);
  return {a.heads, a.window, a.extra, a.lse_error, name};
}

}  // namespace

bool is_weight(const TapCopy& tap) {
  return !tap.output && tap.value_bytes.empty() && tap.owner != nullptr &&
         tap.axes.find_first_of("TRGSFCNLMPXY") == std::string::npos;
}

std::string weight_name(int layer, as_op_id op, const std::string& tap) {
  return (layer < 0 ? std::string("-") : std::to_string(layer)) + "/" + as_op_find(op)->name + "/" +
         tap;
}

TraceEntry TraceWriter::describe(const StepTrace& trace, TensorWriter& writer,
                                 TensorWriter* weights) {
  TraceEntry entry;
  entry.step = trace.step;
  entry.complete = trace.complete;
  entry.tables = options_.level != CaptureLevel::kSummary;
  entry.columns = trace.metadata.columns;
  entry.list_columns = trace.metadata.list_columns;
  Payload payload(writer);
  StatsOnce known;
  if (entry.tables) {
    add_tables(trace, writer, payload);
    for (const RequestView& view : trace.requests) {
      Request& request = entry.requests.emplace_back(view.request);
      request.tokens.clear();
    }
    entry.misses = trace.misses;
    entry.common_prefix = trace.common_prefix;
    if (trace.waiting.request >= 0) entry.waiting = trace.waiting;
  }
  for (const auto& op : trace.ops) {
    OpEntry out;
    out.layer = op->place.layer;
    out.op = op->place.op;
    out.lane = op->lane;
    out.microseconds = op->microseconds;
    if (!op->launches.empty()) out.launches = op->launches;
    out.worst = op->worst;
    out.budget_used = op->budget_used;
    const std::string prefix = place_name(*op);
    const bool full = options_.level == CaptureLevel::kFull && options_.filter.admits(op->place);
    for (const TapCopy& tap : op->taps) {
      TapEntry t{tap.name,       tap.axes,           tap.rule, tap.output,
                 is_weight(tap), kind_of(tap.value), {},       {}};
      if (present(tap.reference) || tap.reference.rank > 0) t.reference = kind_of(tap.reference);
      if (t.weight) {
        const std::string name = weight_name(out.layer, out.op, tap.name);
        if (weights != nullptr && full) weights->add_once(name, tap.value);
      } else {
        t.stats = tap.stats ? *tap.stats : known.of(tap.value);
        const bool keep = options_.keeps(op->place, tap.value.dtype) && present(tap.value);
        if (keep) t.value.name = payload.tensor(prefix + tap.name, tap.value, &*t.stats);
        if (keep && present(tap.reference)) {
          t.reference.name = payload.tensor(prefix + tap.name + ".reference", tap.reference);
        }
      }
      out.taps.push_back(std::move(t));
    }
    for (const RowsCopy& rows : op->rows) {
      out.rows.push_back(describe_rows(rows, prefix, full, payload));
    }
    if (full && op->attention) {
      out.attention = describe_attention(*op->attention, prefix, payload);
    }
    entry.ops.push_back(std::move(out));
  }
  return entry;
}

}  // namespace attnscope
