// The slab that all caches lie in: how each group lays the pages of its layers into a block, with
// offsets and strides in bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session/snapshot.h"

namespace attnscope {

// A layer's page in a block.
struct SlabPage {
  int layer = -1;  // published
  std::string name, content;
  std::int64_t offset = 0, bytes = 0;  // in the block; padding included
  std::int64_t used = 0;               // by rows
  std::string where;                   // of a row, in words: the strides
  std::string sharing;                 // sharing_sentence
};
struct SlabGroup {
  int group = -1;
  std::string name;
  int tokens = 0;               // of a block
  std::int64_t bytes = 0;       // of its pages
  std::vector<SlabPage> pages;  // by offset
};
struct SlabView {
  std::string sentence;
  std::int64_t stride = 0;  // bytes of a block
  std::vector<SlabGroup> groups;
};
SlabView slab_view(const SessionInfo& info);

// Lines for whoever points at a page. block: where that page begins in the slab; < 0: none.
std::string slab_page_text(const SlabView& view, const SlabGroup& group, const SlabPage& page,
                           std::int64_t block);

}  // namespace attnscope
