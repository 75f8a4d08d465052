// linear (all projections) and grouped_linear (wo_a): by the library where it is there and able.
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/ops.h"

namespace attnscope::cuda {
namespace {

Product product_of(const as_linear_params& p) {
  Product m{};
  m.x = p.x.data;
  m.weight = p.weight.data;
  m.y = p.y.data;
  m.rows = p.x.shape[0];
  m.in = p.weight.shape[1];
  m.out = p.weight.shape[0];
  m.batches = 1;
  m.x_stride = p.x.stride[0];
  m.weight_stride = p.weight.stride[0];
  m.y_stride = p.y.stride[0];
  m.wide = p.y.dtype == AS_F32;
  return m;
}

Product product_of(const as_grouped_linear_params& p) {
  Product m{};
  m.x = p.x.data;
  m.weight = p.weight.data;
  m.y = p.y.data;
  m.rows = p.x.shape[0];
  m.in = p.weight.shape[2];
  m.out = p.weight.shape[1];
  m.batches = p.weight.shape[0];
  m.x_stride = p.x.stride[0];
  m.x_batch = p.x.stride[1];
  m.weight_stride = p.weight.stride[1];
  m.weight_batch = p.weight.stride[0];
  m.y_stride = p.y.stride[0];
  m.y_batch = p.y.stride[1];
  return m;
}

int run(const Product& m, const Launch& launch) {
  if (m.rows == 0 || m.out == 0 || m.batches == 0) return 0;
  if (m.in > 0 && library_multiply(m, launch)) return 0;
  return multiply(m, launch);
}

}  // namespace

std::size_t workspace_bytes(const as_linear_params&, const Gpu&) { return library_workspace(); }
std::size_t workspace_bytes(const as_grouped_linear_params&, const Gpu&) {
  return library_workspace();
}

int linear(const as_linear_params& p, const Launch& launch) { return run(product_of(p), launch); }

int linear_plain(const as_linear_params& p, const Launch& launch) {
  return multiply(product_of(p), launch);
}

int grouped_linear(const as_grouped_linear_params& p, const Launch& launch) {
  return run(product_of(p), launch);
}

}  // namespace attnscope::cuda
