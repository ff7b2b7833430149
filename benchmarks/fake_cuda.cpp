// What a PyTorch without CUDA lacks so that FakeTensorMode can run "cuda" tensors forward and
// backward: a device guard, hooks that say that there is a GPU, and an accelerator. Nothing is
// computed; pinned memory is memory whose addresses are noted.
#include <ATen/DeviceAccelerator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>
#include <map>
#include <mutex>

using c10::Device;
using c10::kCUDA;
using c10::Stream;

static std::mutex lock;
static std::map<const char*, size_t> pinned;

struct Pinned final : c10::Allocator {
  static void release(void* data) {
    {
      std::lock_guard<std::mutex> held(lock);
      pinned.erase(static_cast<const char*>(data));
    }
    std::free(data);
  }
  c10::DataPtr allocate(size_t size) override {
    void* data = std::malloc(size);
    std::lock_guard<std::mutex> held(lock);
    pinned[static_cast<const char*>(data)] = size;
    return {data, data, release, c10::kCPU};
  }
  void copy_data(void* to, const void* from, size_t size) const override {
    default_copy_data(to, from, size);
  }
};

namespace at {
struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  Allocator* getPinnedMemoryAllocator() const override {
    static Pinned allocator;
    return &allocator;
  }
  bool isPinnedPtr(const void* data) const override {
    auto place = static_cast<const char*>(data);
    std::lock_guard<std::mutex> held(lock);
    auto next = pinned.upper_bound(place);
    if (next == pinned.begin()) return false;
    auto found = std::prev(next);
    return place < found->first + found->second;
  }
};
REGISTER_CUDA_HOOKS(CUDAHooks)

// In the place of PyTorch's own, which knows only what it was built with.
std::optional<c10::DeviceType> accelerator::getAccelerator(bool) { return kCUDA; }
}  // namespace at

struct Guard final : c10::impl::NoOpDeviceGuardImpl<kCUDA> {
  Device getDevice() const override { return Device(kCUDA, 0); }
  Device exchangeDevice(Device) const override { return getDevice(); }
  Stream getStream(Device) const noexcept override { return Stream(Stream::DEFAULT, getDevice()); }
  Stream exchangeStream(Stream) const noexcept override { return getStream(getDevice()); }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)
