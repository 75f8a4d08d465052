#include "engine/cache/group_spec.h"

namespace attnscope {

const char* group_kind_name(GroupKind kind) {
  switch (kind) {
    case GroupKind::kFull:
      return "full";
    case GroupKind::kSliding:
      return "swa";
    case GroupKind::kChunked:
      return "chunked";
    case GroupKind::kFirst:
      return "first";
  }
  return "?";
}

}  // namespace attnscope
