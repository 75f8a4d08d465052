// What a step would hand to an attention backend, in the form that it reads, as lines of text.
#pragma once

#include <string>
#include <vector>

#include "engine/backend/attention_backend.h"
#include "engine/session/snapshot.h"

namespace attnscope {

struct MetadataLine {
  std::string name;    // "query_start_loc"
  std::string values;  // "0, 1, 2, 10, 20", cut where there are many
};

struct AttentionMetadataView {
  std::string why_empty;  // not empty: there is none, for this reason
  std::string sentence;
  std::vector<MetadataLine> lines;
};

// Of the caches of a running layer. layer: published; one that does not run, or -1: as the first.
AttentionMetadataView attention_metadata_view(const SessionInfo& info, const StepTrace& step,
                                              int layer, MetadataForm form);

}  // namespace attnscope
