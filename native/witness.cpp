#include "witness.h"

#include <stdexcept>

namespace nb = nanobind;

namespace hush {
namespace {

Py_ssize_t length(const nb::list& list) { return PyList_GET_SIZE(list.ptr()); }
PyObject* item(const nb::list& list, Py_ssize_t i) { return PyList_GET_ITEM(list.ptr(), i); }

void need(bool good, const char* sentence) {
    if (!good) throw std::invalid_argument(sentence);
}

bool same_children(PyObject* dict, PyObject* order) {
    need(PyDict_Check(dict) && PyList_Check(order), "children must hold dictionaries, and orders lists.");
    if (PyDict_Size(dict) != PyList_GET_SIZE(order)) return false;
    PyObject *key, *value;
    Py_ssize_t position = 0;
    for (Py_ssize_t i = 0; PyDict_Next(dict, &position, &key, &value); ++i)
        if (value != PyList_GET_ITEM(order, i)) return false;
    return true;
}

// Whether this method of the tensor gives what is expected.
bool answers(PyObject* tensor, PyObject* method, PyObject* expected) {
    nb::object found = nb::steal(PyObject_Vectorcall(method, &tensor, 1, nullptr));
    const int same = found.is_valid() ? PyObject_RichCompareBool(found.ptr(), expected, Py_EQ) : -1;
    if (same < 0) throw nb::python_error();
    return same == 1;
}

}  // namespace

bool unchanged(nb::list dicts, nb::list keys, nb::list values, nb::list children, nb::list orders, nb::list objects,
               nb::list types, nb::list hooks, nb::list filled, nb::list tensors, nb::list addresses, nb::list forms,
               nb::list versions, nb::object data_ptr, nb::object numel, nb::object stride, nb::object version) {
    need(length(dicts) == length(keys) && length(dicts) == length(values) && length(children) == length(orders) &&
             length(objects) == length(types) && length(hooks) == length(filled) && length(tensors) == length(addresses) &&
             length(tensors) == length(forms) && length(tensors) == length(versions),
         "The lists that belong together must be equally long.");
    need(Py_TYPE(version.ptr())->tp_descr_get, "version must be a descriptor.");
    for (Py_ssize_t i = 0; i < length(children); ++i)
        if (!same_children(item(children, i), item(orders, i))) return false;
    for (Py_ssize_t i = 0; i < length(objects); ++i)
        if (reinterpret_cast<PyObject*>(Py_TYPE(item(objects, i))) != item(types, i)) return false;
    for (Py_ssize_t i = 0; i < length(dicts); ++i) {
        PyObject* dict = item(dicts, i);
        need(PyDict_Check(dict), "dicts must hold dictionaries.");
        PyObject* found = PyDict_GetItemWithError(dict, item(keys, i));
        if (!found && PyErr_Occurred()) throw nb::python_error();
        if ((found ? found : Py_Ellipsis) != item(values, i)) return false;
    }
    for (Py_ssize_t i = 0; i < length(hooks); ++i) {
        need(PyDict_Check(item(hooks, i)), "hooks must hold dictionaries.");
        if ((PyDict_Size(item(hooks, i)) != 0) != (item(filled, i) == Py_True)) return false;
    }
    for (Py_ssize_t i = 0; i < length(tensors); ++i) {
        PyObject* tensor = item(tensors, i);
        nb::object at = nb::steal(PyObject_Vectorcall(data_ptr.ptr(), &tensor, 1, nullptr));
        if (!at.is_valid()) {  // what a transform has left behind has no memory
            PyErr_Clear();
            return false;
        }
        if (PyLong_AsSize_t(at.ptr()) != PyLong_AsSize_t(item(addresses, i))) return false;
        if (PyObject* form = item(forms, i); form != Py_None) {
            need(PyTuple_Check(form) && PyTuple_GET_SIZE(form) == 2, "forms must hold pairs.");
            if (!answers(tensor, numel.ptr(), PyTuple_GET_ITEM(form, 0))) return false;
            if (!answers(tensor, stride.ptr(), PyTuple_GET_ITEM(form, 1))) return false;
        }
        const long expected = PyLong_AsLong(item(versions, i));
        if (expected < 0) continue;
        nb::object found = nb::steal(
            Py_TYPE(version.ptr())->tp_descr_get(version.ptr(), tensor, reinterpret_cast<PyObject*>(Py_TYPE(tensor))));
        if (!found.is_valid()) throw nb::python_error();
        if (PyLong_AsLong(found.ptr()) != expected) return false;
    }
    return true;
}

DictVersions::DictVersions(nb::list dicts) {
    for (Py_ssize_t i = 0; i < length(dicts); ++i) {
        need(PyDict_Check(item(dicts, i)), "dicts must hold dictionaries.");
        dicts_.push_back(item(dicts, i));
    }
}

#if PY_VERSION_HEX < 0x030C0000
bool DictVersions::same() const {
    if (versions_.size() != dicts_.size()) return false;
    for (size_t i = 0; i < dicts_.size(); ++i)
        if (reinterpret_cast<PyDictObject*>(dicts_[i])->ma_version_tag != versions_[i]) return false;
    return true;
}
void DictVersions::refresh() {
    versions_.clear();
    for (PyObject* dict : dicts_) versions_.push_back(reinterpret_cast<PyDictObject*>(dict)->ma_version_tag);
}
#else
bool DictVersions::same() const { return false; }
void DictVersions::refresh() {}
#endif

}  // namespace hush
