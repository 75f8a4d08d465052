// paged_attention of tokens that follow each other in a request, on Hopper, by the tiles of
// attention_tiles.cuh: boxes are pages, or tiles of them.
#include "kernels/cuda/paged_tiles.cuh"

namespace attnscope::cuda::paged {

struct PagedOp : PagedTiles {
  int box_rows;
  int panels_k, panels_v;

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
  const I64 box_rows = std::min<I64>(n.k.rows, std::max(fit.keys, 1));
  const bool boxes =
      n.paged && box_rows % 8 == 0 && fit.keys % box_rows == 0 && n.k.rows % box_rows == 0;
  return boxes ? tokens_of_tile(p, n, fit, gpu) : 0;
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
  const PagedOp op{{p, n, n.group, tokens, parts, others},
                   box_rows,
                   static_cast<int>(n.k.head / 64),
                   static_cast<int>(n.v.head / 64)};
  const auto launch_for = [&]<int kDims, bool kGrouped> {
    return tiles::launch_tiles<tiles::Shape<kDims, kGrouped>>(
        op, (p.q.shape[0] + tokens - 1) / tokens, kv_heads, n.splits, k, v, launch);
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
