// paged_attention of tokens that follow each other in a request, on Hopper, by the tiles of
// attention_tiles.cuh: boxes are pages, or tiles of them.
#include "kernels/cuda/attention_tiles.cuh"

namespace attnscope::cuda::paged {

struct PagedOp {
  as_paged_attention_params p;
  Numbers n;
  I64 group;
  int box_rows;
  int panels_k, panels_v;
  I64 tokens;  // of a tile
  float* parts;
  Others others;

  __device__ __forceinline__ bool find(I64 number, tiles::Tile& tile) const {
    // Later tokens see more: they begin first.
    tile.begin = ((p.q.shape[0] - 1) / tokens - number) * tokens;
    tile.tokens = min(tokens, p.q.shape[0] - tile.begin);
    tile.request = request_of_all(p, tile.begin, tile.begin + tile.tokens);
    return tile.request >= 0;
  }
  __device__ __forceinline__ void leave(const tiles::Tile& tile) const {
    others.add(tile.begin, tile.tokens);
  }
  __device__ __forceinline__ Seen seen(I64 token, I64 request) const {
    return seen_by(p, token, request);
  }
  __device__ __forceinline__ Seen part(const Seen& rows) const {
    return part_of(rows, n.splits, blockIdx.z);
  }
  __device__ __forceinline__ I64 first_row(const Seen& rows) const {
    return rows.first / box_rows * box_rows;
  }
  __device__ __forceinline__ tiles::Box box(I64 request, I64 row) const {
    const I64 slot = slot_of(p, n, request, row);
    return {static_cast<int>(slot % n.k.rows), static_cast<int>(slot / n.k.rows)};
  }
  __device__ __forceinline__ const std::uint16_t* value_row(I64 request, I64 row, I64 head) const {
    return n.v.base + offset_of(n.v, slot_of(p, n, request, row), head);
  }
  __device__ __forceinline__ float* part_of_head(I64 token, I64 head) const {
    return n.splits > 1 ? part_at(p, n, parts, token, head, blockIdx.z) : nullptr;
  }
  __device__ __forceinline__ float total(I64 head, float best, float sum) const {
    return total_of(p, head, best, sum);
  }
};

namespace {

tiles::Rows rows_of(const cpu::KvPages& c, I64 size, I64 heads, I64 rows_total) {
  return {c.base, size, heads, c.rows, rows_total / c.rows, c.head, c.row, c.page};
}

tiles::Fit fit_of(const as_paged_attention_params& p) {
  return tiles::fit_of(std::max(p.q.shape[2], p.o.shape[2]));
}

}  // namespace

I64 prefill_tokens(const as_paged_attention_params& p, const Numbers& n, const Gpu& gpu) {
  const tiles::Fit fit = fit_of(p);
  if (!gpu.hopper || fit.rows == 0 || gpu.shared_memory < static_cast<std::size_t>(fit.bytes)) {
    return 0;
  }
  const I64 box_rows = std::min<I64>(n.k.rows, fit.keys);
  const bool boxes =
      n.paged && box_rows % 8 == 0 && fit.keys % box_rows == 0 && n.k.rows % box_rows == 0;
  const bool pairs = p.o.stride[2] == 1 && p.o.shape[2] % 2 == 0 && p.o.stride[0] % 2 == 0 &&
                     p.o.stride[1] % 2 == 0;
  return boxes && pairs ? fit.rows / std::min<I64>(n.group, fit.rows) : 0;
}

int prefill(const as_paged_attention_params& p, const Numbers& n, I64 tokens, float* parts,
            const Others& others, const Launch& launch) {
  const auto stream = static_cast<cudaStream_t>(launch.stream);
  const cudaError_t code = cudaMemsetAsync(others.list, 0, sizeof(*others.list), stream);
  if (code != cudaSuccess) return code;
  const tiles::Fit fit = fit_of(p);
  const int box_rows = static_cast<int>(std::min<I64>(n.k.rows, fit.keys));
  const I64 kv_heads = as_cache_heads(&p.k_cache);
  // Boxes of all columns, where a head has just those of the tile.
  const bool grouped = fit.dims > 64 && p.q.shape[2] == fit.dims && p.o.shape[2] == fit.dims &&
                       n.k.head % 64 == 0 && n.v.head % 64 == 0;
  const auto map = grouped ? tiles::map_groups : tiles::map_rows;
  CUtensorMap k{}, v{};
  int mapped = map(rows_of(n.k, p.q.shape[2], kv_heads, n.rows_total), box_rows, &k);
  if (mapped == 0) mapped = map(rows_of(n.v, p.o.shape[2], kv_heads, n.rows_total), box_rows, &v);
  if (mapped != 0) return mapped;
  const PagedOp op{p,
                   n,
                   n.group,
                   box_rows,
                   static_cast<int>(n.k.head / 64),
                   static_cast<int>(n.v.head / 64),
                   tokens,
                   parts,
                   others};
  const auto launch_for = [&]<int kDims, bool kGrouped> {
    return tiles::launch_tiles<tiles::Shape<kDims, kGrouped>>(
        op, (p.q.shape[0] + tokens - 1) / tokens, kv_heads, n.splits, k, v, stream);
  };
  if (fit.dims == 64) return launch_for.template operator()<64, false>();
  if (fit.dims == 128) {
    return grouped ? launch_for.template operator()<128, true>()
                   : launch_for.template operator()<128, false>();
  }
  return grouped ? launch_for.template operator()<256, true>()
                 : launch_for.template operator()<256, false>();
}

}  // namespace attnscope::cuda::paged
