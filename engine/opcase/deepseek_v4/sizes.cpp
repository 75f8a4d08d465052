#include "engine/opcase/deepseek_v4/sizes.h"

#include "kernels/layout/records.h"

namespace attnscope {
namespace {

constexpr std::int64_t kMostIndexHeads = 512;

constexpr AllowedSize kSizesOfV4[] = {
    {AS_OP_COMPRESS_INSERT, "d", AS_HEAD_DIM, AS_HEAD_DIM, 1},
    {AS_OP_INDEXER_COMPRESS_INSERT, "d", AS_INDEX_DIM, AS_INDEX_DIM, 1},
    {AS_OP_INDEXER_Q, "d", AS_INDEX_DIM, AS_INDEX_DIM, 1},
    {AS_OP_INDEXER_LOGITS, "J", 1, kMostIndexHeads, 1},
};

}  // namespace

std::span<const AllowedSize> deepseek_v4_sizes() { return kSizesOfV4; }

}  // namespace attnscope
