// The activations, as one clamp of a clamp:
//
//   y = clamp(x − clamp(x, low, τ), floor, m)
//
//   one-sided (relu, shifted relu, crelu)   low = −FLT_MAX   floor = 0
//   odd (soft threshold, cst)               low = −τ         floor = −m
//   fatrelu                                 y = x where x > τ, else 0
//   identity                                y = x
//
// A relative one has τ and m in units of s, the root mean square of its sample: φ(x) = s ψ(x/s), which is the same clamps
// at τ s and m s.
//
// The slope is 0 where y = 0 and, with a finite m, where |y| ≥ m; else 1: a function of y alone, so the compact y is all
// that is saved. At a NaN it is what torch's vectorised backwards have: 1 for relu, shifted relu, fatrelu and identity, else 0.
#pragma once
#include <cfloat>
#include <cmath>

namespace hush {

struct Activation {
    float threshold = 0.0f;
    float low = -FLT_MAX;
    float floor = 0.0f;
    float clip = INFINITY;
    bool jump = false;      // fatrelu
    bool identity = false;  // y = x: low = τ = 0, floor = −∞
    bool relative = false;
    bool through_scale = true;  // of a relative one, whether its gradient goes through s as well

    bool odd() const { return low != -FLT_MAX; }
    // Whether units that are silent have a gradient too.
    bool spreads_gradient() const { return relative && through_scale; }

    // A relative activation where a sample's root mean square is s.
    Activation at_scale(float s) const {
        Activation a = *this;
        a.threshold = threshold * s;
        if (!std::isinf(clip)) a.clip = clip * s;
        if (odd()) a.low = -a.threshold, a.floor = -a.clip;
        return a;
    }
    // φ(x) by itself, as torch has it where s is infinite or not a number.
    float at_any_scale(float x, float s) const {
        const float t = threshold * s, m = std::isinf(clip) ? clip : clip * s;
        if (t != t || x != x) return NAN;
        float y = x - (odd() ? std::fmin(std::fmax(x, -t), t) : t);
        if (!odd() && y <= 0.0f) y = 0.0f;
        if (y >= m) return m;
        return odd() && y <= -m ? -m : y;
    }

    float slope(float y) const {
        if (identity || (relative && y != y)) return 1.0f;
        if (std::isinf(clip)) return floor == 0.0f || y == y ? 1.0f : 0.0f;
        return std::fabs(y) < clip ? 1.0f : 0.0f;
    }
};

template <class S>
struct ActivationLanes {
    typename S::F threshold, low, floor, clip;
    bool jump;
    explicit ActivationLanes(const Activation& a)
        : threshold(S::set1(a.threshold)), low(S::set1(a.low)), floor(S::set1(a.floor)), clip(S::set1(a.clip)),
          jump(a.jump) {}

    typename S::A operator()(typename S::F& x) const {
        if (jump) {
            const typename S::A active = S::not_at_most(x, threshold);
            x = S::keep(x, active);
            return active;
        }
        const typename S::F inner = S::at_most(S::at_least(x, low), threshold);
        x = S::at_most(S::at_least(S::sub(x, inner), floor), clip);
        return S::nonzero(x);
    }
};

// What a gradient keeps behind φ: all of it where φ ≠ 0 and φ′ = 1, nothing elsewhere; Activation::slope, by lanes.
template <class S>
struct SlopeLanes {
    bool bounded;
    typename S::F low, high;  // the slope is 1 from low to high
    explicit SlopeLanes(const Activation& a) {
        bounded = !a.identity && (!std::isinf(a.clip) || a.floor != 0.0f);
        const float most = std::isinf(a.clip) ? INFINITY : std::nextafter(a.clip, 0.0f);
        high = S::set1(most), low = S::set1(-most);
    }
    typename S::F operator()(typename S::F d, typename S::F y) const {
        d = S::keep(d, S::nonzero(y));
        if (!bounded) return d;
        return S::keep(S::keep(d, S::no_more(y, high)), S::no_more(low, y));
    }
};

}  // namespace hush
