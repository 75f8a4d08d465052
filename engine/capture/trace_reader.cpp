#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "engine/capture/trace_arrays.h"
#include "engine/capture/trace_io.h"
#include "engine/family/family.h"
#include "engine/io/json_object.h"
#include "engine/io/old_names.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Looks tensors up and copies or maps them; keeps the first thing that does not fit.
class PayloadReader {
 public:
  PayloadReader(const TensorFile* file, std::string path) : file_(file), path_(std::move(path)) {}

  bool ok() const { return ok_; }
  const Error& error() const { return error_; }
  const TensorFile* file() const { return file_; }
  void fail(const std::string& what) {
    if (!ok_) return;
    ok_ = false;
    error_ = bad_input(fmt::format("{}: damaged: {}", path_, what),
                       "record it again, or copy it again from where it came");
  }

  bool has(const std::string& name) const {
    return file_ != nullptr && file_->find(name) != nullptr;
  }

  const TensorEntry* find(const std::string& name) {
    const TensorEntry* entry = file_ != nullptr ? file_->find(name) : nullptr;
    if (entry == nullptr) fail(fmt::format("tensor {} is missing", shown_name(name)));
    return entry;
  }

  template <class T, class A>
  void array(const std::string& name, std::vector<T, A>& out) {
    const TensorEntry* entry = find(name);
    if (entry == nullptr) return;
    if (entry->type != element_of(kDtypeOf<T>)) {
      fail(fmt::format("tensor {} is {}, expected {}", shown_name(name), element_name(entry->type),
                       element_name(element_of(kDtypeOf<T>))));
      return;
    }
    out.resize(static_cast<std::size_t>(entry->elements));
    if (!out.empty()) std::memcpy(out.data(), entry->data, entry->bytes);
  }

  // A tensor of the kind that `ref` says, where it lies.
  as_tensor mapped(const TensorRef& ref, const TensorFile& file, const std::string& name) {
    const TensorEntry* entry = file.find(name);
    if (entry == nullptr) {
      fail(fmt::format("tensor {} is missing", shown_name(name)));
      return no_tensor();
    }
    auto tensor = as_tensor_of(file, *entry);
    if (!tensor) {
      fail(fmt::format("tensor {} cannot be used", shown_name(name)));
      return no_tensor();
    }
    if (ref.dtype != as_dtype_name(tensor->dtype) || ref.shape != entry->shape) {
      fail(fmt::format("tensor {} is {} [{}], expected {} [{}]", shown_name(name),
                       as_dtype_name(tensor->dtype), fmt::join(entry->shape, ","),
                       shown_name(ref.dtype), fmt::join(ref.shape, ",")));
      return no_tensor();
    }
    return *tensor;
  }

 private:
  const TensorFile* file_;
  std::string path_;
  bool ok_ = true;
  Error error_;
};

struct ArrayReader {
  PayloadReader& payload;
  std::string prefix;
  template <class T>
  void operator()(const char* name, std::vector<T>& values) {
    const std::string_view before = step_name_before(name);
    const bool old = !before.empty() && payload.has(prefix + std::string(before));
    payload.array(old ? prefix + std::string(before) : prefix + name, values);
  }
};

struct ColumnCounter {
  std::size_t n = 0;
  template <class T>
  void operator()(T&) {
    ++n;
  }
};
struct ColumnReader {
  const std::int64_t* at;
  template <class T>
  void operator()(T& value) {
    value = static_cast<T>(*at++);
  }
};

template <class T>
void read_table(PayloadReader& payload, const std::string& name, std::vector<T>& out) {
  std::vector<std::int64_t> numbers;
  payload.array(name, numbers);
  ColumnCounter counter;
  T one{};
  columns(counter, one);
  if (numbers.size() % counter.n != 0) {
    payload.fail(fmt::format("tensor {} has no whole number of rows", shown_name(name)));
    return;
  }
  out.resize(numbers.size() / counter.n);
  for (std::size_t i = 0; i < out.size(); ++i) {
    ColumnReader reader{numbers.data() + i * counter.n};
    columns(reader, out[i]);
  }
}

void read_tables(const TraceEntry& entry, const SessionInfo& info, PayloadReader& payload,
                 StepTrace& trace) {
  ArrayReader metadata{payload, "metadata/"}, step{payload, "step/"};
  arrays(metadata, trace.metadata);
  arrays(step, trace);
  read_table(payload, "step/owners", trace.owners);
  read_table(payload, "step/cache_events", trace.cache_events);
  read_table(payload, "step/keys", trace.keys);
  for (std::size_t r = 0; r < entry.requests.size() && payload.ok(); ++r) {
    const std::string prefix = "request/" + std::to_string(r) + "/";
    RequestView& view = trace.requests.emplace_back(RequestView{entry.requests[r], {}});
    payload.array(prefix + "tokens", view.request.tokens);
    view.tables.resize(info.layout.groups.size());
    for (std::size_t g = 0; g < view.tables.size(); ++g) {
      payload.array(prefix + "table." + std::to_string(g), view.tables[g]);
    }
  }
}

void read_taps(const OpEntry& entry, PayloadReader& payload, const TensorFile* weights,
               OpTrace& op) {
  for (const TapEntry& t : entry.taps) {
    TapCopy copy;
    copy.name = t.name;
    copy.axes = t.axes;
    copy.rule = t.rule;
    copy.output = t.output;
    const TensorFile* file = t.weight ? weights : payload.file();
    const std::string name = t.weight ? weight_name(entry.layer, entry.op, t.name) : t.value.name;
    if (file == nullptr || name.empty() || (t.weight && file->find(name) == nullptr)) {
      if (!t.value.name.empty()) payload.find(t.value.name);
      continue;  // it was not kept
    }
    copy.value = payload.mapped(t.value, *file, name);
    copy.owner = file->owner();
    if (!t.reference.name.empty() && payload.file() != nullptr) {
      copy.reference = payload.mapped(t.reference, *payload.file(), t.reference.name);
    }
    if (!payload.ok()) return;
    op.taps.push_back(std::move(copy));
  }
}

void read_rows(const OpEntry& entry, PayloadReader& payload, OpTrace& op) {
  for (const RowsEntry& r : entry.rows) {
    if (r.prefix.empty()) continue;
    RowsCopy rows;
    rows.name = r.name;
    rows.record = r.record;
    rows.width = r.width;
    rows.heads = r.heads;
    rows.group = r.group;
    rows.rows_per_block = r.rows_per_block;
    rows.row_bytes = r.row_bytes;
    payload.array(r.prefix + ".tokens", rows.tokens);
    payload.array(r.prefix + ".slots", rows.slots);
    payload.array(r.prefix + ".bytes", rows.bytes);
    if (r.reference) payload.array(r.prefix + ".reference", rows.reference);
    op.rows.push_back(std::move(rows));
  }
}

void read_attention(const AttentionEntry& a, PayloadReader& payload, OpTrace& op) {
  auto copy = std::make_shared<AttentionCopy>();
  copy->heads = a.heads;
  copy->window = a.window;
  copy->extra = a.extra;
  copy->lse_error = static_cast<float>(a.lse_error);
  payload.array(a.prefix + ".slots", copy->slots);
  payload.array(a.prefix + ".window_len", copy->window_len);
  payload.array(a.prefix + ".extra_len", copy->extra_len);
  payload.array(a.prefix + ".logits", copy->logits);
  payload.array(a.prefix + ".weights", copy->weights);
  payload.array(a.prefix + ".sink_mass", copy->sink_mass);
  payload.array(a.prefix + ".sinks", copy->sinks);
  op.attention = std::move(copy);
}

// Memory of its own; what is mapped costs none.
std::int64_t own_bytes(const OpTrace& op) {
  std::size_t n = 0;
  for (const RowsCopy& r : op.rows) n += r.bytes.size() + r.reference.size() + r.slots.size() * 12;
  if (op.attention) n += op.attention->logits.size() * 8 + op.attention->slots.size() * 8;
  return static_cast<std::int64_t>(n);
}

}  // namespace

Result<std::shared_ptr<const StepTrace>> read_trace(const TraceEntry& entry,
                                                    const std::vector<TapResult>& results,
                                                    const SessionInfo& info, const TensorFile* file,
                                                    const TensorFile* weights,
                                                    const std::string& path) {
  PayloadReader payload(file, path);
  auto trace = std::make_shared<StepTrace>();
  trace->step = entry.step;
  trace->complete = entry.complete;
  trace->metadata.columns = entry.columns;
  trace->metadata.list_columns = entry.list_columns;
  trace->metadata.own = family_of(info.config).step_tensors(info.config, info.layout);
  if (entry.tables) read_tables(entry, info, payload, *trace);
  trace->misses = entry.misses;
  trace->common_prefix = entry.common_prefix;
  trace->waiting = entry.waiting.value_or(StepWhy{});
  for (const OpEntry& o : entry.ops) {
    auto op = std::make_shared<OpTrace>();
    op->place = {entry.step, o.layer, o.op};
    op->lane = o.lane;
    op->microseconds = o.microseconds;
    op->launches = o.launches.value_or(OpLaunches{});
    if (entry.tables) {
      read_taps(o, payload, weights, *op);
      read_rows(o, payload, *op);
      if (o.attention) read_attention(*o.attention, payload, *op);
    }
    op->worst = o.worst;
    op->budget_used = o.budget_used;
    std::ranges::copy_if(results, std::back_inserter(op->results),
                         [&](const TapResult& r) { return r.op == o.op && r.layer == o.layer; });
    if (!payload.ok()) return payload.error();
    trace->bytes += own_bytes(*op);
    trace->ops.push_back(std::move(op));
  }
  if (!payload.ok()) return payload.error();
  if (const std::string wrong = check_trace(*trace, info); !wrong.empty()) {
    payload.fail(wrong);
    return payload.error();
  }
  return std::shared_ptr<const StepTrace>(std::move(trace));
}

}  // namespace attnscope
