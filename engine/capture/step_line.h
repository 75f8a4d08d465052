// One line of steps.jsonl.
#pragma once

#include "engine/capture/trace_fields.h"

namespace attnscope {

struct FileRef {
  std::uint64_t bytes = 0;  // 0 = there is none
  std::string digest;       // 16 hex digits
};
// Where a line of traces.jsonl lies, without its newline.
struct LineRef {
  std::uint64_t at = 0, bytes = 0;
};

struct StepLine {
  StepSummary summary;
  LineRef trace;                                        // bytes 0 = there is none
  FileRef payload;                                      // payload/STEP.safetensors
  FileRef cache;                                        // cache/STEP.safetensors
  std::optional<std::vector<CacheEvent>> cache_events;  // none: not known any more
};

template <class V>
void fields(V& v, FileRef& f) {
  v("bytes", f.bytes);
  v("digest", f.digest);
}
template <class V>
void fields(V& v, LineRef& l) {
  v("at", l.at);
  v("bytes", l.bytes);
}
template <class V>
void fields(V& v, StepLine& s) {
  v("summary", s.summary);
  v("trace", s.trace);
  v("payload", s.payload);
  v("cache", s.cache);
  v.later("cache_events", s.cache_events);
}

}  // namespace attnscope
