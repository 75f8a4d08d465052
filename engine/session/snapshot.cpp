#include "engine/session/snapshot.h"

#include <cstring>

namespace attnscope {
namespace {

// Dense copy of a dense tensor.
as_tensor copy_tensor(const as_tensor& from, std::vector<std::uint8_t>& bytes) {
  if (from.data == nullptr) return {};
  as_tensor to = from;
  std::int64_t extent = 1;
  for (std::int32_t axis = 0; axis < from.rank; ++axis) {
    if (from.shape[axis] == 0) return {};
    extent += (from.shape[axis] - 1) * from.stride[axis];
  }
  bytes.resize(static_cast<std::size_t>(extent * as_dtype_size(from.dtype)));
  std::memcpy(bytes.data(), from.data, bytes.size());
  to.data = bytes.data();
  return to;
}

}  // namespace

std::shared_ptr<const Snapshot> take_snapshot(const Session& session, bool copy_taps) {
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->cursor = session.cursor();
  snapshot->next_op = session.next_op();
  snapshot->finished = session.finished();
  snapshot->lanes = session.lanes().description();
  const auto groups = static_cast<int>(session.parts().layout.groups.size());
  for (const Request& request : session.scheduler().requests()) {
    RequestView view{request, {}};
    for (int g = 0; g < groups; ++g) {
      const auto table = session.blocks().table(request.id, g);
      view.tables.emplace_back(table.begin(), table.end());
    }
    snapshot->requests.push_back(std::move(view));
  }
  snapshot->owners = session.blocks().owners();
  snapshot->free_blocks = session.blocks().num_free();
  snapshot->metadata = session.metadata();
  snapshot->results = session.current_results();
  snapshot->history = std::make_shared<const std::vector<StepRecord>>(session.history());
  if (!session.ran_any()) return snapshot;
  const OpParams& params = session.last_params();
  snapshot->last_op = params.op();
  if (!copy_taps) return snapshot;
  const as_op_info& info = params.info();
  // Reserved, because tensors point into their own entry.
  snapshot->taps.reserve(info.num_taps);
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.kind != AS_TAP_TENSOR || params.tensor(tap.offset).data == nullptr) continue;
    TapCopy& copy = snapshot->taps.emplace_back();
    copy.name = tap.name;
    copy.axes = tap.axes;
    copy.value = copy_tensor(params.tensor(tap.offset), copy.value_bytes);
    if (tap.direction == AS_TAP_OUT && session.references() != References::kNone) {
      copy.reference = copy_tensor(session.last_forced().tensor(tap.offset), copy.reference_bytes);
    }
  }
  return snapshot;
}

}  // namespace attnscope
